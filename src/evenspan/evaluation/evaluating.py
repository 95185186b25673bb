"""Evaluate a model on a benchmark."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

from sentence_transformers import SentenceTransformer

from evenspan.calibration import Calibration
from evenspan.evaluation.benchmark import Benchmark, Collection
from evenspan.evaluation.measures import Scores, measure
from evenspan.evaluation.methods import Bm25, Calibrated, Method, Plain, baseline
from evenspan.evaluation.scores import EvaluationResult, QueryScore
from evenspan.evaluation.scoring import Resampling, summarise
from evenspan.evaluation.search import search
from evenspan.evaluation.vectors import Encoder
from evenspan.models.calibrating import calibration_of

_PACKAGES = (
    "evenspan", "torch", "transformers", "sentence-transformers", "tokenizers", "numpy", "scipy", "ir-measures",
    "pytrec-eval-terrier", "bm25s", "chonkie", "datasets",
)  # fmt: skip


def evaluate(
    model: SentenceTransformer,
    benchmark: Benchmark,
    calibration: Calibration | None = None,
    *,
    method: Method | str | None = None,
    cuts: Sequence[int] = (10,),
    query_prompt: str | None = None,
    document_prompt: str | None = None,
    batch_size: int = 32,
    cache: str | Path | None = None,
    resamples: int = 1000,
    seed: int = 42,
    progress: bool = True,
) -> EvaluationResult:
    """Encode, search exactly, and score by position.

    Args:
        model: the model; it is left as it was.
        benchmark: from `load_benchmark`.
        calibration: how documents are encoded; by default as the model does now.
        method: a baseline instead, by name or as an object of `evenspan.evaluation.methods`.
        cuts: more cuts for nDCG and recall; 10 is always among them.
        query_prompt: put in front of queries, in place of the model's own query prompt.
        document_prompt: put in front of documents, likewise.
        batch_size: of encoding.
        cache: folder for vectors: a run that is interrupted goes on where it stopped.
        resamples: bootstrap resamples for the 95 % intervals; 0 for none.
        seed: of the bootstrap.
        progress: whether to show a bar.

    Example:
        >>> benchmark = load_benchmark("nanobeir")  # doctest: +SKIP
        >>> print(compare([evaluate(model, benchmark), evaluate(model, benchmark, Calibration())]))  # doctest: +SKIP
    """
    chosen = choose_method(model, calibration, method)
    chosen.check(model, document_prompt)
    all_cuts = sorted({10, *cuts})
    if all_cuts[0] < 1:
        raise ValueError(f"A cut must be at least 1, not {all_cuts[0]}.")
    encoder = Encoder(
        model,
        cache=None if cache is None else Path(cache),
        batch_size=batch_size,
        query_prompt=query_prompt,
        document_prompt=document_prompt,
        progress=progress,
    )
    rows: list[QueryScore] = []
    vectors = documents = 0.0
    for collection in benchmark.collections:
        # Deeper than the last cut a ranking has no effect on any figure.
        scores, per_document = _search(collection, chosen, encoder, min(benchmark.depth, all_cuts[-1]), all_cuts)
        vectors += per_document * len(collection.corpus)
        documents += len(collection.corpus)
        rows.extend(
            QueryScore(collection.name, query.id, query.groups, query.position, query.length, scores[query.id])
            for query in collection.queries
        )
    figures = summarise(benchmark, rows, Resampling(resamples, seed))
    return EvaluationResult(
        benchmark=benchmark.name,
        method=chosen.name,
        vectors_per_document=vectors / documents,
        setting=run_setting(
            model,
            benchmark,
            weights=encoder.weights,
            query_prompt=query_prompt,
            document_prompt=document_prompt,
            batch_size=batch_size,
            cuts=all_cuts,
            seed=seed,
            resamples=resamples,
        ),
        per_query=tuple(rows),
        **figures,
    )


def choose_method(model: SentenceTransformer, calibration: Calibration | None, method: Method | str | None) -> Method:
    """The method that the arguments of `evaluate` name."""
    if calibration is not None and method is not None:
        raise ValueError("Give a calibration or a method, not both.")
    if method is not None:
        return baseline(method) if isinstance(method, str) else method
    current = calibration if calibration is not None else calibration_of(model)
    return Plain() if current is None else Calibrated(current)


def _search(
    collection: Collection, method: Method, encoder: Encoder, depth: int, cuts: Sequence[int]
) -> tuple[Scores, float]:
    """Scores of each query, and the vectors that a document costs."""
    questions = {query.id: query.text for query in collection.queries}
    if isinstance(method, Bm25):
        ranked = method.rank(collection.corpus, list(questions.values()), depth)
        per_document = 0.0
    else:
        documents = encoder.documents(method, collection.corpus, collection.name)
        ranked = search(encoder.queries(questions, collection.name), documents, depth)
        per_document = documents.per_document
    rankings = dict(zip(questions, ranked, strict=True))
    return measure(rankings, collection.relevance, cuts), per_document


def run_setting(
    model: SentenceTransformer,
    benchmark: Benchmark,
    *,
    weights: str,
    query_prompt: str | None = None,
    document_prompt: str | None = None,
    batch_size: int = 32,
    cuts: Sequence[int] = (10,),
    seed: int = 42,
    resamples: int = 1000,
) -> dict[str, Any]:
    """Everything needed to repeat a run, and to tell whether a result is of the same run."""
    config = model.config
    return {
        "model": getattr(config, "_name_or_path", None),
        "revision": getattr(config, "_commit_hash", None),
        "weights_sha256": weights,
        "max_tokens": model.max_seq_length,
        "similarity": str(model.similarity_fn_name),
        "truncate_dim": model.truncate_dim,
        "dtype": str(model.dtype).removeprefix("torch."),
        "device": model.device.type,
        "attention": getattr(config, "_attn_implementation", None),
        "prompts": dict(model.prompts),
        "default_prompt_name": model.default_prompt_name,
        "query_prompt": query_prompt,
        "document_prompt": document_prompt,
        "batch_size": batch_size,
        "benchmark_options": dict(benchmark.options),
        "data_sha256": benchmark.digest(),
        "documents": sum(len(collection.corpus) for collection in benchmark.collections),
        "queries": len(benchmark.queries),
        "cuts": sorted({10, *cuts}),
        "seed": seed,
        "resamples": resamples,
        "tie_rule": "scores rounded to 9 decimals, equal ones by ascending document id",
        "versions": {name: _version(name) for name in _PACKAGES} | {"python": platform.python_version()},
    }


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
