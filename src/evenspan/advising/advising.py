"""Advise: whole documents or chunks, calibrated or not, hybrid or not, on your own texts and without labels."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from sentence_transformers import SentenceTransformer

from evenspan.advising.advice import Advice, AdviceRow
from evenspan.advising.choosing import Limits, choice, marked, remarks, shortage
from evenspan.advising.costs import ROUNDS, relative_costs
from evenspan.advising.layouts import Layout, layouts
from evenspan.advising.words import nothing_told, sentence_of
from evenspan.calibration import Calibration
from evenspan.encoding import Truncated, truncation
from evenspan.errors import UnsupportedModelError, require_evaluation
from evenspan.evaluation.benchmark import Benchmark
from evenspan.evaluation.benchmarks.texts import TooShortError, documents_of, from_texts, is_made_of_texts
from evenspan.evaluation.evaluating import Evaluator
from evenspan.evaluation.methods import Calibrated
from evenspan.evaluation.scores import EvaluationResult
from evenspan.identity import ModelIdentity
from evenspan.models.calibrating import uncalibrated
from evenspan.models.reading import room_for_text
from evenspan.progress import ProgressBar
from evenspan.sweeps import LeftOff, Tuning, left_off, strengths, tune


def advise(
    model: SentenceTransformer,
    benchmark: Benchmark | Sequence[str],
    calibration: Calibration | None = None,
    *,
    budget: float | None = None,
    bytes: float | None = None,  # noqa: A002 - as people ask for it
    query_prompt: str | None = None,
    document_prompt: str | None = None,
    batch_size: int = 32,
    cache: str | Path | None = None,
    resamples: int = 1000,
    seed: int = 42,
    source: str = "corpus.jsonl",
    index_options: dict[str, str] | None = None,
    progress: bool = True,
) -> Advice:
    """Whether to calibrate, whether to chunk, and what it costs: a table, the answer, and the command that builds the index.

    Args:
        model: the model; it is left as it was.
        benchmark: texts, sentences of which stand in for questions, or a benchmark with positions.
        calibration: of whole documents; by default the best of four strengths, as `tune` finds it. Chunks are calibrated
            by the same with even baskets of 64.
        budget: maximum average number of vectors per document.
        bytes: maximum average bytes per document in the index, with float32 vectors.
        query_prompt: as in `evaluate`, and so are the next four.
        document_prompt: likewise.
        batch_size: likewise.
        cache: likewise.
        seed: likewise.
        resamples: at least 100, to tell a gain from noise.
        source: the source to name in the command.
        index_options: more options of the command.
        progress: whether to show bars.

    Example:
        >>> print(evenspan.advise(model, texts, budget=4))  # doctest: +SKIP
    """
    require_evaluation("Advice", "bm25s")
    if resamples < 100:
        raise ValueError(f"Advice needs at least 100 resamples to tell a gain from noise, not {resamples}.")
    limits, name = Limits(budget, bytes), ModelIdentity.of(model).to_setting()["model"] or "MODEL"
    prompts = {"query_prompt": query_prompt, "document_prompt": document_prompt}
    more = (index_options or {}) | prompt_options(**prompts)
    asked = {"budget": budget, "bytes": bytes}
    if not isinstance(benchmark, Benchmark):
        try:
            benchmark = from_texts(benchmark, seed=seed)
        except TooShortError as error:
            return short_texts(model, error, source=source, prompt=document_prompt, more=more, **asked)
    with uncalibrated(model), TemporaryDirectory() if cache is None else nullcontext(cache) as folder:
        options = {**prompts, "batch_size": batch_size, "cache": folder, "seed": seed}
        measured = _measured(model, benchmark, calibration, resamples, progress, options)
    too_few = shortage(benchmark)
    return _advice(measured, limits, too_few, source, more, model=name, benchmark=benchmark.name, **asked)


def prompt_options(query_prompt: str | None, document_prompt: str | None) -> dict[str, str]:
    """What `evenspan index` must be told, so that it asks and encodes as was measured."""
    given = {"--query-prompt": query_prompt, "--document-prompt": document_prompt}
    return {name: value for name, value in given.items() if value is not None}


@dataclass(frozen=True)
class _Measured:
    """Every layout that was tried, and what was found."""

    tried: list[Layout]
    rows: list[AdviceRow]
    results: tuple[EvaluationResult, ...]
    cut: Truncated
    notes: tuple[str, ...]


def _measured(
    model: SentenceTransformer,
    benchmark: Benchmark,
    calibration: Calibration | None,
    resamples: int,
    progress: bool,
    options: dict[str, Any],
) -> _Measured:
    """Tune, evaluate all layouts, and find out what they cost."""
    if not benchmark.groups:
        raise ValueError(f"{benchmark.name} has no positions: advice needs texts, or a benchmark with positions.")
    prompt, notes = options["document_prompt"], list[str]()
    cut = truncation(model, documents_of(benchmark), prompt)
    setting, tuned = _setting(model, benchmark, calibration, resamples, progress, notes, options)
    evaluator = Evaluator.of(model, resamples=resamples, **options)
    tried = _usable(model, list(layouts(setting, room_for_text(model, prompt), cut.longest)), notes)
    results = {}
    for number, layout in enumerate(tried, 1):
        label = f"{number} of {len(tried)}: {layout.name}"
        results[layout.method.name] = evaluator.run(benchmark, layout.method, progress=progress and label)
    costs = _costs(evaluator, tried, benchmark, progress=progress)
    kept = remarks(tried, results, tuned, stand_ins=is_made_of_texts(benchmark.options))
    rows = [
        _row(layout, results[layout.method.name], costs, cut, remark)
        for layout, remark in zip(tried, kept, strict=True)
    ]
    of_all = set.intersection(*(set(result.notes) for result in results.values()))  # others are on a row's PSI
    common = [note for note in results[tried[0].method.name].notes if note in of_all]
    return _Measured(tried, rows, tuple(results.values()), cut, (*common, *notes))


def _advice(
    measured: _Measured, limits: Limits, too_few: str | None, source: str, more: dict[str, str], **known: Any
) -> Advice:
    """What to do, from what was found; from too few documents, whatever they say, to leave all as it is."""
    rows = measured.rows if too_few else marked(measured.rows, measured.tried, limits)
    chosen = 0 if too_few else choice(rows, limits)
    layout = measured.tried[chosen]
    return Advice(
        truncation=measured.cut,
        rows=tuple(rows),
        sentence=nothing_told(too_few) if too_few else sentence_of(rows, measured.tried, chosen, limits),
        calibration=layout.calibration,
        command=layout.command(known["model"], source, more),
        notes=measured.notes,
        setting=measured.results[0].setting,
        results=measured.results,
        **known,
    )


def short_texts(
    model: SentenceTransformer,
    error: TooShortError,
    *,
    source: str,
    prompt: str | None,
    more: dict[str, str],
    **asked: Any,
) -> Advice:
    """The advice for texts that no stand-in can be taken from: they are as short as chunks, or else this is the error."""
    answer = left_off(model, error, strengths(), prompt)
    name = ModelIdentity.of(model).to_setting()["model"] or "MODEL"
    (whole, *_) = layouts(None, 1, 1)
    sentence = f"{answer.answer} One vector per text is enough."
    command = whole.command(name, source, more)
    return Advice(name, "texts", answer.truncation, (), sentence, None, command, **asked)


def _setting(
    model: SentenceTransformer,
    benchmark: Benchmark,
    calibration: Calibration | None,
    resamples: int,
    progress: bool,
    notes: list[str],
    options: dict[str, Any],
) -> tuple[Calibration | None, Tuning | None]:
    """The setting of whole documents, if there is one, and what tuning said of it, if it was asked."""
    try:
        if calibration is not None and calibration.strength == 0:
            notes.append("nothing is calibrated: the given setting turns it off")
            return None, None
        if calibration is not None:
            Calibrated(calibration).check(model)
            return calibration, None
        tuned = tune(model, benchmark, strengths(layers=("half",)), resamples=resamples, progress=progress, **options)
    except UnsupportedModelError as error:
        notes.append(f"nothing is calibrated: {error}")
        return None, None
    except ValueError as error:
        if calibration is not None:
            raise
        notes.append(f"nothing is calibrated: {error}")
        return None, None
    if isinstance(tuned, LeftOff):
        notes.append(tuned.answer)
        return None, None
    return tuned.calibration or tuned.candidate, tuned


def _usable(model: SentenceTransformer, tried: list[Layout], notes: list[str]) -> list[Layout]:
    """The layouts that the model can take; why it cannot take the others is noted."""
    usable = []
    for layout in tried:
        try:
            layout.method.check(model)
            usable.append(layout)
        except (TypeError, ValueError) as error:
            notes.append(f"{layout.name}: {error}")
    return usable


def _costs(evaluator: Evaluator, tried: Sequence[Layout], benchmark: Benchmark, *, progress: bool) -> dict[str, float]:
    """Of what makes the vectors of each layout."""
    methods = list({layout.dense.name: layout.dense for layout in tried}.values())
    with ProgressBar("Timing", ROUNDS * len(methods), unit="passes", shown=progress) as bar:
        return relative_costs(evaluator.encoder.encoders["document"], methods, documents_of(benchmark), bar)


def _row(
    layout: Layout, result: EvaluationResult, costs: dict[str, float], cut: Truncated, remark: str | None
) -> AdviceRow:
    return AdviceRow(
        name=layout.name,
        method=result.method,
        positions={name: group.ndcg for name, group in result.groups.items()},
        ndcg=result.ndcg,
        harmonic_mean=float(result.harmonic_mean or 0.0),
        psi=float(result.psi or 0.0),
        vectors=result.vectors_per_document,
        bytes=float(result.bytes_per_document or 0.0),
        cost=costs[layout.dense.name],
        unread=cut.share if layout.truncates else 0.0,
        calibrated=layout.plain is not None,
        remark=remark,
    )
