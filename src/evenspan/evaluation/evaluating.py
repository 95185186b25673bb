"""Evaluate a model on a benchmark."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sentence_transformers import SentenceTransformer

from evenspan.calibration import Calibration
from evenspan.errors import require_evaluation
from evenspan.evaluation.benchmark import Benchmark, Collection
from evenspan.evaluation.measures import measure, with_default_cut
from evenspan.evaluation.methods import Bm25, Calibrated, Hybrid, Method, Plain, baseline
from evenspan.evaluation.methods.hybrid import DEPTH as FUSED
from evenspan.evaluation.scores import EvaluationResult, QueryScore
from evenspan.evaluation.scoring import Resampling, summarise
from evenspan.evaluation.search import search
from evenspan.evaluation.units import document_units
from evenspan.evaluation.vectors import CachedEncoder
from evenspan.formatting import method_name
from evenspan.identity import versions
from evenspan.models.calibrating import calibration_of
from evenspan.progress import ProgressBar

_PACKAGES = (
    "evenspan", "torch", "transformers", "sentence-transformers", "tokenizers", "numpy", "scipy", "ir-measures",
    "pytrec-eval-terrier", "bm25s", "pystemmer", "chonkie", "sentencex", "datasets", "python",
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
    progress: bool | str = True,
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
        batch_size: most texts in a batch; long ones share smaller batches, and still smaller ones when memory runs out. On a
            GPU 32 is no limit.
        cache: folder for vectors: a run that is interrupted goes on where it stopped.
        resamples: bootstrap resamples for the 95 % intervals; 0 for none.
        seed: of the bootstrap.
        progress: whether to show a bar, or its name.

    Example:
        >>> benchmark = load_benchmark("nanobeir")  # doctest: +SKIP
        >>> print(compare([evaluate(model, benchmark), evaluate(model, benchmark, Calibration())]))  # doctest: +SKIP
    """
    require_evaluation("Evaluation")
    if calibration is not None and method is not None:
        raise ValueError("Give a calibration or a method, not both.")
    if method is None:
        current = calibration or calibration_of(model)
        method = Plain() if current is None else Calibrated(current)
    elif isinstance(method, str):
        method = baseline(method)
    options = {"query_prompt": query_prompt, "document_prompt": document_prompt, "batch_size": batch_size}
    evaluator = Evaluator.of(model, cuts=cuts, resamples=resamples, seed=seed, cache=cache, **options)
    return evaluator.run(benchmark, method, progress=progress)


@dataclass(frozen=True)
class Ranked:
    """The documents of a collection for each question, and what it takes to keep it: vectors, and bytes in float32."""

    documents: Iterator[list[str]]
    vectors: int
    size: int
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Evaluator:
    """Evaluates any number of methods with one model, and encodes queries and documents once."""

    resampling: Resampling
    cuts: list[int]
    encoder: CachedEncoder

    @classmethod
    def of(
        cls, model: SentenceTransformer, cuts: Sequence[int] = (10,), resamples: int = 1000, seed: int = 42, **more: Any
    ) -> Evaluator:
        """With the options of `evaluate`, which are checked here."""
        return cls(Resampling(resamples, seed), with_default_cut(cuts), CachedEncoder(model, **more))

    def run(self, benchmark: Benchmark, method: Method, *, progress: bool | str = False) -> EvaluationResult:
        """Encode, search and score; `progress` may name the bar."""
        method.check(self.encoder.model, self.encoder.encoders["document"].prompt)
        rows: list[QueryScore] = []
        units = document_units(benchmark)
        notes: dict[str, None] = dict.fromkeys(method.remarks())
        vectors = size = documents = 0.0
        label = (
            progress if isinstance(progress, str) else f"Encoding documents and queries ({method_name(method.name)})"
        )
        with ProgressBar(label, _texts(benchmark), shown=bool(progress) and not isinstance(method, Bm25)) as bar:
            for collection in benchmark.collections:
                questions = {query.id: query.text for query in collection.queries}
                depth = min(benchmark.depth, self.cuts[-1])  # deeper than the last cut a ranking has no effect
                ranked = self._rank(collection, questions, method, depth, bar)
                rankings = dict(zip(questions, ranked.documents, strict=True))
                scores = measure(rankings, collection.relevance, self.cuts)
                vectors, size, documents = (
                    vectors + ranked.vectors,
                    size + ranked.size,
                    documents + len(collection.corpus),
                )
                notes |= dict.fromkeys(ranked.notes)
                rows.extend(
                    QueryScore(name, query.id, query.groups, query.position, query.length, scores[query.id], unit)
                    for query in collection.queries
                    for name, unit in [(collection.name, units[collection.name, query.id])]
                )
        summary = summarise(benchmark, rows, self.resampling)
        return EvaluationResult(
            benchmark=benchmark.name,
            method=method.name,
            vectors_per_document=vectors / documents,
            bytes_per_document=size / documents,
            setting=self.setting(benchmark),
            per_query=tuple(rows),
            **{**summary, "notes": (*summary["notes"], *notes)},
        )

    def _rank(
        self, collection: Collection, questions: Mapping[str, str], method: Method, depth: int, bar: ProgressBar
    ) -> Ranked:
        """The best documents of a collection for each question."""
        if isinstance(method, Hybrid):
            methods = (method.dense, method.sparse)
            parts = [self._rank(collection, questions, part, max(depth, FUSED), bar) for part in methods]
            documents = method.fuse([part.documents for part in parts], depth)
            notes = tuple(note for part in parts for note in part.notes)
            return Ranked(documents, parts[0].vectors, sum(part.size for part in parts), notes)
        if isinstance(method, Bm25):
            index = method.index(collection.corpus)
            return Ranked(index.rank(list(questions.values()), depth), 0, index.bytes, (index.remark(),))
        vectors = self.encoder.documents(method, collection.corpus, collection.name, bar)
        asked = self.encoder.queries(questions, collection.name, bar)
        return Ranked(search(asked, vectors, depth), len(vectors.vectors), vectors.vectors.nbytes)

    def setting(self, benchmark: Benchmark) -> dict[str, Any]:
        """Everything needed to repeat a run, and to tell whether a result is of the same run."""
        model = self.encoder.model
        return {
            **self.encoder.identity.to_setting(),
            "similarity": str(model.similarity_fn_name),
            "truncate_dim": model.truncate_dim,
            "prompts": dict(model.prompts),
            "default_prompt_name": model.default_prompt_name,
            "query_prompt": self.encoder.encoders["query"].prompt,
            "document_prompt": self.encoder.encoders["document"].prompt,
            "batch_size": self.encoder.batch_size,
            "benchmark_options": dict(benchmark.options),
            "data_sha256": benchmark.digest(),
            "documents": sum(len(collection.corpus) for collection in benchmark.collections),
            "queries": len(benchmark.queries),
            "cuts": self.cuts,
            "seed": self.resampling.seed,
            "resamples": self.resampling.resamples,
            "tie_rule": "scores rounded to 9 decimals, equal ones by ascending document id",
            "versions": versions(*_PACKAGES),
        }


def _texts(benchmark: Benchmark) -> int:
    """How many texts are encoded: of those that are the same, one."""
    return sum(
        len(set(collection.corpus.values())) + len({query.text for query in collection.queries})
        for collection in benchmark.collections
    )
