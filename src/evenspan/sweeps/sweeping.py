"""Evaluate many settings on one benchmark."""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from sentence_transformers import SentenceTransformer

from evenspan.calibration import Calibration
from evenspan.evaluation.benchmark import Benchmark
from evenspan.evaluation.evaluating import evaluate
from evenspan.evaluation.methods import Calibrated, Method, Plain, Vectors
from evenspan.evaluation.scores import EvaluationResult
from evenspan.evaluation.vectors import Encoder
from evenspan.models.calibrating import uncalibrated
from evenspan.sweeps.grids import paper_grid
from evenspan.sweeps.shared import SharedEncoder
from evenspan.sweeps.sweep_result import DETACHED, SweepResult
from evenspan.sweeps.vectors import check_calibrations, encode


@dataclass(frozen=True)
class Detached(Method):
    """A calibration approximated: only the pooling token's own way through the layers is calibrated."""

    kind: ClassVar[str] = "detached"
    calibration: Calibration = Calibration()

    @property
    def name(self) -> str:  # noqa: D102
        return f"{self.calibration}{DETACHED}"

    def encode(self, model: SentenceTransformer, texts: Sequence[str], **options: Any) -> Vectors:  # noqa: D102
        return list(encode(model, texts, [self.calibration], detached=True, **options)[self.calibration][:, None])


def sweep(
    model: SentenceTransformer,
    benchmark: Benchmark,
    calibrations: Sequence[Calibration] | None = None,
    *,
    detached: bool = False,
    cache: str | Path | None = None,
    batch_size: int = 32,
    query_prompt: str | None = None,
    document_prompt: str | None = None,
    resamples: int = 1000,
    seed: int = 42,
    progress: bool = True,
    each: Callable[[EvaluationResult], None] | None = None,
) -> SweepResult:
    """Evaluate a model plain and under every setting, with the work that the settings have in common done once.

    A setting that cannot be evaluated is reported with its reason, and does not keep the others.

    Args:
        model: the model; it is left as it was.
        benchmark: from `load_benchmark`.
        calibrations: the settings; by default the paper's grid.
        detached: approximate, see `evenspan.sweeps.encode`; the best setting is then evaluated exactly as well.
        cache: folder for vectors: a sweep that is interrupted goes on where it stopped, batch by batch.
        batch_size: of encoding.
        query_prompt: put in front of queries, in place of the model's own query prompt.
        document_prompt: put in front of documents, likewise.
        resamples: bootstrap resamples for the intervals; 0 for none.
        seed: of the bootstrap.
        progress: whether to show bars.
        each: called with every result as soon as it is there.
    """
    settings = list(dict.fromkeys(paper_grid() if calibrations is None else calibrations))
    if not settings:
        raise ValueError("A sweep needs at least one setting.")
    check_calibrations(settings)
    failures = _refused(model, settings)
    if detached:  # what is exact anyway is not called approximate
        shared = SharedEncoder(model, [one for one in settings if one not in failures], detached=True)
        detached = shared.works and not shared.causal
    methods: dict[Calibration, Method] = {one: Detached(one) if detached else Calibrated(one) for one in settings}
    common: dict[str, Any] = {
        "query_prompt": query_prompt,
        "document_prompt": document_prompt,
        "batch_size": batch_size,
    }
    with ExitStack() as stack:
        stack.enter_context(uncalibrated(model))
        folder = Path(cache) if cache is not None else Path(stack.enter_context(tempfile.TemporaryDirectory()))
        encoder = Encoder(model, cache=folder, progress=progress, **common)
        usable = {one: method for one, method in methods.items() if one not in failures}
        for collection in benchmark.collections:
            try:
                _fill(encoder, list(usable.items()), collection.corpus, collection.name, detached)
            except (
                Exception
            ) as error:  # whatever one setting does must not cost the others: each is tried by itself below
                warnings.warn(
                    f"Encoding the settings together failed ({error}): they are encoded one by one.", stacklevel=2
                )
                break
        rest: dict[str, Any] = {"cache": folder, "resamples": resamples, "seed": seed, "progress": False, **common}
        plain = evaluate(model, benchmark, method=Plain(), **rest)
        results: dict[Calibration, EvaluationResult] = {}
        for one, method in usable.items():
            try:
                results[one] = evaluate(model, benchmark, method=method, **rest)
            except Exception as error:
                failures[one] = f"{type(error).__name__}: {error}"
                continue
            if each is not None:
                each(results[one])
        found = SweepResult(plain, results, failures, detached)
        best = found.best
        if detached and best is not None:
            rest["progress"] = progress
            found = SweepResult(plain, results, failures, detached, evaluate(model, benchmark, best, **rest))
    return found


def _refused(model: SentenceTransformer, settings: Sequence[Calibration]) -> dict[Calibration, str]:
    """Settings that the model cannot take, with the reason; a model that takes none is an error."""
    failures: dict[Calibration, str] = {}
    for one in settings:
        try:
            Calibrated(one).check(model)
        except (TypeError, ValueError) as error:
            failures[one] = str(error)
    if len(failures) == len(settings):
        raise ValueError(f"None of the {len(settings)} settings can be used. {next(iter(failures.values()))}")
    return failures


def _fill(
    encoder: Encoder,
    methods: Sequence[tuple[Calibration, Method]],
    corpus: Mapping[str, str],
    part: str,
    detached: bool,
) -> None:
    """Put the vectors of all settings, and the plain ones, into the cache that `evaluate` reads."""
    by_name = {method.name: calibration for calibration, method in methods}

    def encode_many(texts: Sequence[str], names: Sequence[str]) -> dict[str, Vectors]:
        wanted = [by_name[name] for name in names if name in by_name]
        vectors = encode(
            encoder.model,
            texts,
            wanted,
            detached=detached,
            batch_size=encoder.batch_size,
            prompt=encoder.document_prompt,
            show_progress_bar=False,
        )
        return {name: list((vectors[by_name[name]] if name in by_name else vectors.plain)[:, None]) for name in names}

    encoder.fill([Plain().name, *by_name], corpus, encode_many, part)
