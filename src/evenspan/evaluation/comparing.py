"""Results side by side, with the paired significance of each difference."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from evenspan.evaluation.scores import EvaluationResult
from evenspan.evaluation.scoring import EVENNESS, FEW, group_rows, overall_mean, overall_parts, values_of
from evenspan.evaluation.statistics import Interval, Values, paired_interval, paired_p_value

if TYPE_CHECKING:
    import pandas

SIGNIFICANT = 0.05
_LATEX = str.maketrans({"_": r"\_", "%": r"\%", "*": r"$^{*}$"})
_EVENNESS = {"HM": "harmonic_mean", "PSI": "psi"}  # columns and fields of a result


@dataclass(frozen=True)
class Difference:
    """How far a figure lies from the baseline's.

    Attributes:
        value: the figure minus the baseline's.
        p_value: of a paired t-test over queries; None for what is no mean of queries (HM, PSI, an average over sets).
        interval: 95 % paired bootstrap interval.
        significant: p below 0.05, or where there is none an interval without 0; never with fewer than ten queries.
    """

    value: float
    p_value: float | None
    interval: Interval | None
    significant: bool


@dataclass(frozen=True)
class ComparedMethod:
    """One method: its figures, and their differences from the baseline's (empty for the baseline itself)."""

    method: str
    figures: dict[str, float | None]
    differences: dict[str, Difference]
    vectors_per_document: float

    def cell(self, name: str) -> str:
        """A figure as tables have it, with a star if it differs from the baseline's."""
        value, difference = self.figures.get(name), self.differences.get(name)
        if value is None:
            return "–"
        mark = "*" if difference is not None and difference.significant else ""
        return f"{value:.3f}{mark}" if name == "PSI" else f"{100 * value:.1f}{mark}"


@dataclass(frozen=True)
class Comparison:
    """Methods on one benchmark; the first one is the baseline of all differences."""

    benchmark: str
    columns: tuple[str, ...]
    rows: tuple[ComparedMethod, ...]
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        table = self._cells()
        widths = [max(len(row[place]) for row in table) for place in range(len(table[0]))]
        lines = ["  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]) for row in table]
        lines.insert(1, "  ".join("─" * width for width in widths))
        return "\n".join([self.benchmark, *lines, *self._footnotes()])

    def to_markdown(self) -> str:
        """A Markdown table."""
        header, *body = self._cells()
        rule = ["---", *["---:"] * (len(header) - 1)]
        lines = [f"| {' | '.join(row)} |" for row in (header, rule, *body)]
        return "\n".join([*lines, "", *self._footnotes()])

    def to_latex(self) -> str:
        """A LaTeX table for `booktabs`."""
        cells = self._cells()
        header, *lines = (" & ".join(row).translate(_LATEX) + r" \\" for row in cells)
        start = r"\begin{tabular}{l" + "r" * (len(cells[0]) - 1) + "}"
        return "\n".join([start, r"\toprule", header, r"\midrule", *lines, r"\bottomrule", r"\end{tabular}"])

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
        if any(row.vectors_per_document > 1 for row in self.rows):
            costs = ["vectors/document", *(f"{row.vectors_per_document:.1f}" for row in self.rows)]
            return [[*cells, cost] for cells, cost in zip(table, costs, strict=True)]
        return table

    def _footnotes(self) -> list[str]:
        star = (
            f"* differs from {self.rows[0].method} (paired t-test over queries, p < {SIGNIFICANT}; "
            "HM, PSI and averages over sets: 95 % paired bootstrap interval without 0)"
        )
        return [*([star] if len(self.rows) > 1 else []), *self.notes]


def compare(results: Sequence[EvaluationResult]) -> Comparison:
    """Set results on one benchmark side by side; differences are from the first.

    Scores are ×100 in tables and 0 to 1 in `to_json` and `to_frame`.
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
    columns = [f"nDCG@10 {name}" for name in first.groups] if len(first.groups) <= 6 else []
    columns += ["nDCG@10", "Recall@10", *(["HM", "PSI"] if first.psi is not None else [])]
    rows = tuple(_compared(result, first) for result in results)
    notes = tuple(dict.fromkeys(note for result in results for note in result.notes))
    return Comparison(first.benchmark, tuple(columns), rows, notes)


def _queries(result: EvaluationResult) -> list[tuple[str, str]]:
    return [(row.collection, row.query) for row in result.per_query]


def _compared(result: EvaluationResult, base: EvaluationResult) -> ComparedMethod:
    figures: dict[str, float | None] = {f"nDCG@10 {name}": group.ndcg for name, group in result.groups.items()}
    figures |= {"nDCG@10": result.ndcg, "Recall@10": result.recall}
    if result.psi is not None:
        figures |= {"HM": result.harmonic_mean, "PSI": result.psi}
    differences = {} if result is base else {name: _difference(name, result, base) for name in figures}
    return ComparedMethod(result.method, figures, differences, result.vectors_per_document)


def _difference(name: str, result: EvaluationResult, base: EvaluationResult) -> Difference:
    statistic = EVENNESS[_EVENNESS[name]] if name in _EVENNESS else overall_mean
    own, others = (_parts(name, side, base) for side in (result, base))
    # A mean of queries has a test; a mean of means, as HM and PSI, has its interval.
    p_value = paired_p_value(own[0], others[0]) if len(own) == 1 and name not in _EVENNESS else None
    interval = paired_interval(own, others, statistic, base.setting["resamples"], base.setting["seed"])
    apart = interval is not None and not interval[0] <= 0 <= interval[1]
    significant = apart if p_value is None else p_value < SIGNIFICANT
    enough = min(len(values) for values in own) >= FEW
    return Difference(float(statistic(own) - statistic(others)), p_value, interval, significant and enough)


def _parts(name: str, result: EvaluationResult, base: EvaluationResult) -> list[Values]:
    """The scores that a figure is made of: of one group, of every group, or of what the overall figure is the mean of."""
    grouped = group_rows(result.scoring, base.groups, result.per_query)
    if name in _EVENNESS:
        return [values_of(members, "ndcg@10") for members in grouped.values()]
    measure, _, group = name.partition(" ")
    if group:
        return [values_of(grouped[group], measure.lower())]
    return overall_parts(result.scoring, grouped, result.per_query, measure.lower())
