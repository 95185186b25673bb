"""Which of the ways is the best at what."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from evenspan.advising.advice import AdviceRow
from evenspan.advising.layouts import Layout
from evenspan.evaluation.benchmark import Benchmark
from evenspan.evaluation.comparing import SIGNIFICANT, compare
from evenspan.evaluation.scores import EvaluationResult
from evenspan.evaluation.statistics import holm
from evenspan.evaluation.units import FEW
from evenspan.formatting import count
from evenspan.sweeps import Tuning
from evenspan.sweeps.objectives import Aim

CLOSE = 0.01  # of HM: as good, for an index that is smaller
NOISE = "not better than plain beyond noise"
FLATTERED = "overestimated: the stand-ins are words of the documents"
AS_GOOD = "better than plain by less than a point"
LEFT_OFF = "left off, as for whole documents"
FEWEST_DOCUMENTS = 20  # nDCG@10 finds everything among ten


def shortage(benchmark: Benchmark) -> str | None:
    """Why nothing can be told from a benchmark, if it has too few documents or queries; in words that begin a sentence."""
    documents = max(len(collection.corpus) for collection in benchmark.collections)
    counts = benchmark.group_counts()
    rarest = min(counts, key=counts.__getitem__)
    if documents >= FEWEST_DOCUMENTS and counts[rarest] >= FEW:
        return None
    return (
        f"There are too few documents to tell anything: {documents} are searched, and {counts[rarest]} queries ask for the "
        f"{rarest}; it takes at least {FEWEST_DOCUMENTS}, and {FEW} queries at each position."
    )


@dataclass(frozen=True)
class Limits:
    """What an index may have for a document."""

    vectors: float | None = None
    bytes: float | None = None

    def __post_init__(self) -> None:
        for name, value, least in (("budget", self.vectors, 1), ("bytes", self.bytes, 1)):
            if value is not None and not value >= least:
                raise ValueError(f"{name} must be at least {least}, not {value}.")

    def __bool__(self) -> bool:
        return self.vectors is not None or self.bytes is not None

    def allow(self, row: AdviceRow) -> bool:
        """Whether a row stays within them."""
        few = self.vectors is None or row.vectors <= self.vectors
        return few and (self.bytes is None or row.bytes <= self.bytes)

    def __str__(self) -> str:
        vectors = [] if self.vectors is None else [f"{self.vectors:g} vector{'s' * (self.vectors != 1)}"]
        return " and ".join([*vectors, *([] if self.bytes is None else [f"{count(self.bytes)} bytes"])])


def marked(rows: Sequence[AdviceRow], layouts: Sequence[Layout], limits: Limits) -> list[AdviceRow]:
    """The rows with what each of them is the best at; those with a remark that rules them out have no marks."""
    usable = [place for place, row in enumerate(rows) if row.remark in (None, layouts[place].cannot_build)]
    best = max(usable, key=lambda place: rows[place].harmonic_mean)
    marks: dict[str, int] = {}
    single = [place for place in usable if rows[place].vectors == 1 and not layouts[place].is_hybrid]
    marks["best at one vector"] = max(single, key=lambda place: rows[place].harmonic_mean)
    within = [place for place in usable if limits.allow(rows[place])]
    if limits and within:
        marks[f"best within {limits}"] = max(within, key=lambda place: rows[place].harmonic_mean)
    elif not limits:
        marks["best eligible"] = best  # rows with a remark may be higher
    close = [place for place in usable if rows[place].harmonic_mean >= rows[best].harmonic_mean - CLOSE]
    marks["smallest within a point of the best"] = _smallest(rows, close)
    return [
        replace(row, marks=tuple(mark for mark, place in marks.items() if place == number))
        for number, row in enumerate(rows)
    ]


def choice(rows: Sequence[AdviceRow], limits: Limits) -> int:
    """The row to build: the best within the limits, or without any the smallest index within a point of the best.

    Where that is nothing that `evenspan index` builds, or nothing stays within the limits, the next best that does.
    """
    buildable = [place for place, row in enumerate(rows) if row.remark is None]
    allowed = [place for place in buildable if limits.allow(rows[place])]
    if not allowed:
        return _smallest(rows, buildable)
    best = max(allowed, key=lambda place: rows[place].harmonic_mean)
    if limits:
        return best
    close = [place for place in allowed if rows[place].harmonic_mean >= rows[best].harmonic_mean - CLOSE]
    return _smallest(rows, close)


def _smallest(rows: Sequence[AdviceRow], places: Sequence[int]) -> int:
    """Of some rows the one with the fewest bytes, and of several with as few the best."""
    return min(places, key=lambda place: (rows[place].bytes, -rows[place].harmonic_mean))


def remarks(
    layouts: Sequence[Layout], results: Mapping[str, EvaluationResult], tuned: Tuning | None, *, stand_ins: bool
) -> list[str | None]:
    """What keeps each layout from being chosen; of whole documents it is what tuning said, if it was asked.

    Chunks are calibrated only where whole documents are: tuning confirms on other queries, and nothing does that for chunks.
    """
    reasons = [layout.cannot_build or (FLATTERED if layout.is_hybrid and stand_ins else None) for layout in layouts]
    tested = []
    for place, layout in enumerate(layouts):
        if reasons[place] is not None or layout.plain is None:
            continue
        if tuned is not None and layout.chunk_tokens is None:
            reasons[place] = None if tuned.calibration is not None else "; ".join(tuned.losses) or NOISE
        elif tuned is not None and tuned.calibration is None:
            reasons[place] = LEFT_OFF
        else:
            tested.append((place, layout.plain.name))
    pairs = [(results[plain], results[layouts[place].method.name]) for place, plain in tested]
    for (place, _), reason in zip(tested, against(pairs), strict=True):
        reasons[place] = reason
    return reasons


def against(pairs: Sequence[tuple[EvaluationResult, EvaluationResult]]) -> list[str | None]:
    """What speaks against each calibration, given as results without and with it: it is not better, or costs too much.

    The tests are corrected for their number, as any of them may be passed by chance; and what is as good as plain, as an index
    is that is smaller, stays plain: chunks weigh the same with and without, so that a gain of any size would be chosen.
    """
    aims = [Aim("balanced", calibrated.psi is not None) for _, calibrated in pairs]
    comparisons = [compare(pair, corrected=True) for pair in pairs]  # of two: p-values for Holm to start from
    gains = [aim.gain(*pair, compared) for aim, pair, compared in zip(aims, pairs, comparisons, strict=True)]
    corrected = holm([float(gain.corrected_p_value or 0.0) for gain in gains])
    reasons: list[str | None] = []
    for aim, pair, compared, gain, p_value in zip(aims, pairs, comparisons, gains, corrected, strict=True):
        if p_value >= SIGNIFICANT or gain.value <= 0:
            reasons.append(NOISE)
        else:
            reasons.append("; ".join(aim.losses(*pair, compared)) or (AS_GOOD if gain.value < CLOSE else None))
    return reasons
