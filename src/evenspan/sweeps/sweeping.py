"""Evaluate many settings on one benchmark."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from sentence_transformers import SentenceTransformer

from evenspan.calibration import Calibration
from evenspan.encoding import Encoder
from evenspan.errors import require_evaluation
from evenspan.evaluation.benchmark import Benchmark
from evenspan.evaluation.evaluating import Evaluator
from evenspan.evaluation.methods import Calibrated, Method, Plain, Vectors
from evenspan.evaluation.scores import EvaluationResult
from evenspan.evaluation.vectors import CachedEncoder
from evenspan.models.calibrating import uncalibrated
from evenspan.progress import ProgressBar
from evenspan.sweeps.grids import paper_grid
from evenspan.sweeps.shared import SharedEncoder
from evenspan.sweeps.sweep_result import DETACHED, SweepResult
from evenspan.sweeps.vectors import bar_label, check_calibrations, encode_settings


@dataclass(frozen=True)
class Detached(Method):
    """A calibration approximated: only the pooling token's own way through the layers is calibrated."""

    calibration: Calibration = Calibration()

    @property
    def name(self) -> str:  # noqa: D102
        return f"{self.calibration}{DETACHED}"

    def encode(self, encoder: Encoder, texts: Sequence[str], bar: ProgressBar | None = None) -> Vectors:  # noqa: D102
        swept = encode_settings(encoder, texts, [self.calibration], detached=True, bar=bar)
        return list(swept[self.calibration][:, None])


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

    The settings are the paper's grid unless `calibrations` says otherwise. One that cannot be evaluated is reported with its
    reason, and does not keep the others. With `detached` it is approximate, see `evenspan.sweeps.encode`, and the best
    setting is then evaluated exactly as well. `each` is called with every result as soon as it is there. All other
    arguments are those of `evaluate`.
    """
    require_evaluation("A sweep")
    usable, failures = _usable(model, paper_grid() if calibrations is None else calibrations)
    if detached:  # what is exact anyway is not called approximate
        detached = SharedEncoder(model, usable, detached=True).approximate
    methods: dict[Calibration, Method] = {key: Detached(key) if detached else Calibrated(key) for key in usable}
    prompts: dict[str, Any] = {"query_prompt": query_prompt, "document_prompt": document_prompt}
    with uncalibrated(model), TemporaryDirectory() if cache is None else nullcontext(cache) as folder:
        evaluator = Evaluator.of(model, cache=folder, batch_size=batch_size, resamples=resamples, seed=seed, **prompts)
        encode_together(evaluator.encoder, benchmark, methods, detached=detached, progress=progress)
        plain = evaluator.run(benchmark, Plain())
        results: dict[Calibration, EvaluationResult] = {}
        for setting, method in methods.items():
            try:
                results[setting] = evaluator.run(benchmark, method)
            except Exception as error:
                failures[setting] = f"{type(error).__name__}: {error}"
                continue
            if each is not None:
                each(results[setting])
        swept = SweepResult(plain, results, failures, detached)
        if detached and swept.best is not None:
            swept = replace(swept, rechecked=evaluator.run(benchmark, Calibrated(swept.best), progress=progress))
    return swept


def _usable(
    model: SentenceTransformer, calibrations: Sequence[Calibration]
) -> tuple[list[Calibration], dict[Calibration, str]]:
    """The settings that the model can take, and the others with the reason; a model that takes none is an error."""
    settings = list(dict.fromkeys(calibrations))
    if not settings:
        raise ValueError("A sweep needs at least one setting.")
    check_calibrations(settings)
    failures: dict[Calibration, str] = {}
    for setting in settings:
        try:
            Calibrated(setting).check(model)
        except (TypeError, ValueError) as error:
            failures[setting] = str(error)
    if len(failures) == len(settings):
        raise ValueError(f"None of the {len(settings)} settings works for this model. {next(iter(failures.values()))}")
    return [setting for setting in settings if setting not in failures], failures


def encode_together(
    encoder: CachedEncoder, benchmark: Benchmark, methods: dict[Calibration, Method], *, detached: bool, progress: bool
) -> None:
    """Put the vectors of all settings, and the plain ones, into the cache that they are evaluated from."""
    by_name = {method.name: calibration for calibration, method in methods.items()}
    total = sum(len(set(collection.corpus.values())) for collection in benchmark.collections)

    def encode_many(texts: Sequence[str], names: Sequence[str]) -> dict[str, Vectors]:
        wanted = [by_name[name] for name in names if name in by_name]
        swept = encode_settings(encoder.encoders["document"], texts, wanted, detached=detached, bar=bar)
        return {name: list((swept[by_name[name]] if name in by_name else swept.plain)[:, None]) for name in names}

    with ProgressBar(bar_label(len(methods)), total, shown=progress) as bar:
        for collection in benchmark.collections:
            try:
                texts = collection.corpus.values()
                encoder.fill([Plain().name, *by_name], texts, encode_many, collection.name, bar, "document")
            except Exception as error:  # what one setting does must not cost the others: each is tried by itself then
                warnings.warn(
                    f"Encoding the settings together failed ({error}): they are encoded one by one.", stacklevel=3
                )
                return
