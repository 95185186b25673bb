"""Results side by side, with the paired significance of each difference."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING

from evenspan.evaluation.measures import position_sensitivity
from evenspan.evaluation.sampling import Sample
from evenspan.evaluation.scores import EvaluationResult, QueryScore
from evenspan.evaluation.scoring import BUCKETS, EVENNESS, group_rows, in_bucket, overall_mean, overall_parts, sample_of
from evenspan.evaluation.statistics import Bootstrap, Interval, Statistic, holm, paired_p_value
from evenspan.evaluation.units import FEW, by_document
from evenspan.formatting import is_baseline, latex_table, markdown_table, text_table

if TYPE_CHECKING:
    import pandas

SIGNIFICANT = 0.05
_FEW_GROUPS = 6  # a table has a column for each
_EVENNESS = {"HM": "harmonic_mean", "PSI": "psi"}  # columns and fields of a result
_BUCKETS = {f"PSI({bucket})": bucket for bucket in BUCKETS}  # PosIR's


@dataclass(frozen=True)
class Difference:
    """How far a figure lies from the baseline's.

    Attributes:
        value: the figure minus the baseline's.
        p_value: of a paired t-test over documents; None for what is no mean of queries (HM, PSI, an average over sets).
        interval: 95 % paired bootstrap interval over documents.
        significant: p below 0.05, or where there is none an interval without 0; never with fewer than ten documents.
        corrected_p_value: after Holm's correction for the methods that are compared, where it was asked for; it then
            decides about `significant`.
    """

    value: float
    p_value: float | None
    interval: Interval | None
    significant: bool
    corrected_p_value: float | None = None


@dataclass(frozen=True)
class ComparedMethod:
    """One method: its figures, and their differences from the baseline's (empty for the baseline itself)."""

    method: str
    figures: dict[str, float | None]
    differences: dict[str, Difference]
    vectors_per_document: float
    bytes_per_document: float | None = None

    def cell(self, name: str) -> str:
        """A figure as tables have it, with a star if it differs from the baseline's."""
        value, difference = self.figures.get(name), self.differences.get(name)
        if value is None:
            return "–"
        mark = "*" if difference is not None and difference.significant else ""
        return f"{value:.3f}{mark}" if name.startswith("PSI") else f"{100 * value:.1f}{mark}"

    def costs(self) -> list[str]:
        """What a document costs in the index, as tables have it."""
        size = "–" if self.bytes_per_document is None else f"{self.bytes_per_document:,.0f}"
        return [f"{self.vectors_per_document:.1f}", size]


@dataclass(frozen=True)
class Comparison:
    """Methods on one benchmark; the first one is the baseline of all differences."""

    benchmark: str
    columns: tuple[str, ...]
    rows: tuple[ComparedMethod, ...]
    notes: tuple[str, ...] = ()
    corrected: int = 0  # how many comparisons the stars of a column are corrected for; 0 where they are not
    observations: str = "documents"  # what tests and intervals are over

    def __str__(self) -> str:
        return "\n".join([self.benchmark, text_table(self._cells()), *self._footnotes()])

    def sorted_by(self, column: str) -> Comparison:
        """The first method, then the others by a column, the best first: least PSI, fewest `vectors` or `bytes`."""
        costs = {"vectors": "vectors_per_document", "bytes": "bytes_per_document"}
        if column not in costs and column not in self.columns:
            raise ValueError(f"Unknown column {column!r}. Available: {', '.join((*costs, *self.columns))}.")

        def place(row: ComparedMethod) -> tuple[bool, float]:
            value = getattr(row, costs[column]) if column in costs else row.figures.get(column)
            rising = column in costs or column.startswith("PSI")
            return value is None, 0.0 if value is None else float(value if rising else -value)

        return replace(self, rows=(self.rows[0], *sorted(self.rows[1:], key=place)))

    def to_markdown(self) -> str:
        """A Markdown table."""
        return "\n".join([markdown_table(self._cells()), "", *self._footnotes()])

    def to_latex(self) -> str:
        """A LaTeX table for `booktabs`, and what its stars mean as comments below it."""
        cells = self._cells()
        return latex_table(cells, "l" + "r" * (len(cells[0]) - 1), self._footnotes())

    def to_json(self) -> str:
        """All figures, 0 to 1, with differences, p-values and intervals."""
        return json.dumps(asdict(self), indent=2, ensure_ascii=False)

    def to_frame(self) -> pandas.DataFrame:
        """One row for each method and figure."""
        import pandas

        rows: list[dict[str, object]] = []
        for row in self.rows:
            for name, value in row.figures.items():
                rows.append({"method": row.method, "figure": name, "value": value})
                if (by := row.differences.get(name)) is not None:
                    rows[-1] |= {"difference": by.value, "p_value": by.p_value, "significant": by.significant}
        return pandas.DataFrame(rows)

    def _cells(self) -> list[list[str]]:
        table = [["method", *self.columns], *([row.method, *map(row.cell, self.columns)] for row in self.rows)]
        if any(row.vectors_per_document != 1 or is_baseline(row.method) for row in self.rows):
            costs = [["vectors/document", "bytes/document"], *(row.costs() for row in self.rows)]
            return [[*cells, *cost] for cells, cost in zip(table, costs, strict=True)]
        return table

    def _footnotes(self) -> list[str]:
        tests = f"paired t-test over {self.observations}, p < {SIGNIFICANT}"
        interval = f"95 % paired bootstrap interval over {self.observations} without 0"
        others = f"HM, PSI and averages over sets: {interval}"
        if self.corrected:
            others = "HM, PSI and averages over sets: by their paired bootstrap"
            others += f"; p corrected after Holm for the {self.corrected} settings of a column"
        elif len(self.rows) > 2:
            others += f"; not corrected for the {len(self.rows) - 1} methods that are compared"
        star = f"* differs from {self.rows[0].method} ({tests}; {others})"
        older = "over queries: results of this version do not say which of them are on the same document"
        floor = "PSI floor: the mean PSI when positions are shuffled, which is chance alone"
        shown = {
            star: any(row.differences for row in self.rows),
            older: self.observations == "queries" and any(row.differences for row in self.rows),
            floor: "PSI floor" in self.columns,
        }
        return [*(line for line, needed in shown.items() if needed), *self.notes]


def compare(results: Sequence[EvaluationResult], *, corrected: bool = False) -> Comparison:
    """Set results on one benchmark side by side; differences are from the first.

    Scores are ×100 in tables and 0 to 1 in `to_json` and `to_frame`. With `corrected`, what is significant is decided after
    Holm's correction over all results but the first, figure by figure: of many settings some look better by chance.
    """
    if not results:
        raise ValueError("compare needs at least one result.")
    first = results[0]
    for other in results[1:]:
        if other.benchmark != first.benchmark or _queries(other) != _queries(first):
            raise ValueError(
                f"Results of different queries cannot be compared: {first.benchmark!r} ({len(first.per_query)} queries) "
                f"and {other.benchmark!r} ({len(other.per_query)})."
            )
    results = _with_units(results)
    first = results[0]
    rows = tuple(_compared(result, first, corrected=corrected) for result in results)
    settings = len(rows) - 1 if corrected and len(rows) > 2 else 0
    skipped = {f"Recall@10 {name}" for name in first.groups}
    skipped |= {f"nDCG@10 {name}" for name in first.groups if len(first.groups) > _FEW_GROUPS}
    columns = tuple(name for name in rows[0].figures if name not in skipped)
    notes = tuple(dict.fromkeys(note for result in results for note in result.notes))
    observations = "documents" if by_document(first.per_query) else "queries"
    rows = _corrected(rows) if settings else rows
    return Comparison(first.benchmark, columns, rows, notes, settings, observations)


def _with_units(results: Sequence[EvaluationResult]) -> Sequence[EvaluationResult]:
    """Results whose queries have units if those of any have: files of the first versions do not know them."""
    known = next((result for result in results if by_document(result.per_query)), None)
    if known is None:
        return results
    units = [row.unit for row in known.per_query]  # the same queries in the same order
    return [
        result
        if by_document(result.per_query)
        else replace(result, per_query=tuple(map(lambda row, unit: replace(row, unit=unit), result.per_query, units)))
        for result in results
    ]


def _queries(result: EvaluationResult) -> list[tuple[str, str]]:
    return [(row.collection, row.query) for row in result.per_query]


def _compared(result: EvaluationResult, base: EvaluationResult, *, corrected: bool) -> ComparedMethod:
    figures: dict[str, float | None] = {f"nDCG@10 {name}": group.ndcg for name, group in result.groups.items()}
    if base.scoring == "average":
        figures |= {f"Recall@10 {name}": group.recall for name, group in result.groups.items()}
    figures |= {"nDCG@10": result.ndcg, "Recall@10": result.recall}
    if result.psi is not None:
        figures |= {"HM": result.harmonic_mean, "PSI": result.psi}
        figures |= {"PSI floor": result.more.get("psi_floor")} if "psi_floor" in base.more else {}
        known = {name: f"psi_{bucket}" for name, bucket in _BUCKETS.items() if f"psi_{bucket}" in base.more}
        figures |= {name: result.more.get(field) for name, field in known.items()}
    tested = [name for name in figures if name != "PSI floor" and result is not base and result.per_query]
    differences = {name: _difference(name, result, base, corrected=corrected) for name in tested}
    return ComparedMethod(result.method, figures, differences, result.vectors_per_document, result.bytes_per_document)


def _difference(name: str, result: EvaluationResult, base: EvaluationResult, *, corrected: bool) -> Difference:
    evenness = _EVENNESS.get(name.partition("(")[0])
    (measure, own), (_, others) = (_parts(name, side, base) for side in (result, base))
    statistic = EVENNESS[evenness] if evenness else overall_mean
    # A mean of queries has a test; a mean of means, as HM and PSI, has its interval.
    difference = _paired(sample_of(own, measure, others), statistic, base, tested=len(own) == 1 and not evenness)
    return difference if corrected else replace(difference, corrected_p_value=None)


def difference_of(statistic: Statistic, base: EvaluationResult, result: EvaluationResult) -> Difference:
    """How far a statistic of the groups' nDCG@10 lies from the baseline's."""
    own, others = (_parts("HM", side, base)[1] for side in (result, base))
    return replace(_paired(sample_of(own, "ndcg@10", others), statistic, base, tested=False), corrected_p_value=None)


def _paired(sample: Sample, statistic: Statistic, base: EvaluationResult, *, tested: bool) -> Difference:
    """A difference with the p-value that Holm's correction starts from."""
    values = statistic(sample.means)
    bootstrap = Bootstrap.of(sample, base.setting["resamples"], base.setting["seed"])
    p_value = paired_p_value(sample) if tested else None
    interval = None if bootstrap is None else bootstrap.difference(statistic)
    apart = interval is not None and not interval[0] <= 0 <= interval[1]
    significant = apart if p_value is None else p_value < SIGNIFICANT
    enough = sample.units >= FEW
    start = bootstrap.p_value(statistic) if bootstrap and p_value is None else p_value
    unsure = not apart and statistic is position_sensitivity  # no test of PSI is surer than its interval
    start = start if enough and start is not None and not unsure else 1.0
    return Difference(float(values[0] - values[1]), p_value, interval, significant and enough, start)


def _corrected(rows: tuple[ComparedMethod, ...]) -> tuple[ComparedMethod, ...]:
    """Rows whose differences are significant after Holm's correction over all of them, figure by figure."""
    base, *others = rows
    changed: list[dict[str, Difference]] = [{} for _ in others]
    for name in others[0].differences:
        raw = [row.differences[name].corrected_p_value for row in others]
        for row, differences, p_value in zip(others, changed, holm([float(p or 0.0) for p in raw]), strict=True):
            known = row.differences[name]
            differences[name] = replace(known, corrected_p_value=p_value, significant=p_value < SIGNIFICANT)
    return base, *(replace(row, differences=of_row) for row, of_row in zip(others, changed, strict=True))


def _parts(name: str, result: EvaluationResult, base: EvaluationResult) -> tuple[str, list[Sequence[QueryScore]]]:
    """The measure of a figure, and the queries of its parts: one group, every group, or what the overall figure is made of."""
    rows = in_bucket(_BUCKETS[name], result.per_query) if name in _BUCKETS else result.per_query
    grouped = group_rows(result.scoring, base.groups, rows)
    if name in _EVENNESS or name in _BUCKETS:
        return "ndcg@10", list(grouped.values())
    measure, _, group = name.partition(" ")
    if group:
        return measure.lower(), [grouped[group]]
    return measure.lower(), overall_parts(result.scoring, grouped, result.per_query)
