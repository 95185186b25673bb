"""Results side by side, with the paired significance of each difference."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from evenspan.evaluation.measures import harmonic_mean, position_sensitivity
from evenspan.evaluation.scores import EvaluationResult, QueryScore
from evenspan.evaluation.scoring import FEW, group_rows, overall_mean, overall_parts
from evenspan.evaluation.statistics import Interval, means, paired_interval, paired_p_value

if TYPE_CHECKING:
    import pandas

SIGNIFICANT = 0.05


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


@dataclass(frozen=True)
class Comparison:
    """Methods on one benchmark; the first one is the baseline of all differences."""

    benchmark: str
    columns: tuple[str, ...]
    rows: tuple[ComparedMethod, ...]
    notes: tuple[str, ...] = field(default=())

    def __str__(self) -> str:
        table = self._cells()
        widths = [max(len(row[place]) for row in table) for place in range(len(table[0]))]
        lines = [
            "  ".join(
                cell.ljust(width) if place == 0 else cell.rjust(width)
                for place, (cell, width) in enumerate(zip(row, widths, strict=True))
            )
            for row in table
        ]
        lines.insert(1, "  ".join("─" * width for width in widths))
        return "\n".join([f"{self.benchmark}", *lines, *self._footnotes()])

    def to_markdown(self) -> str:
        """A Markdown table."""
        header, *body = self._cells()
        rule = ["---", *["---:"] * (len(header) - 1)]
        lines = [f"| {' | '.join(row)} |" for row in (header, rule, *body)]
        return "\n".join([*lines, "", *self._footnotes()])

    def to_latex(self) -> str:
        """A LaTeX table for `booktabs`."""
        header, *body = (
            [cell.replace("_", r"\_").replace("%", r"\%").replace("*", r"$^{*}$") for cell in row]
            for row in self._cells()
        )
        lines = [
            r"\begin{tabular}{l" + "r" * (len(header) - 1) + "}",
            r"\toprule",
            " & ".join(header) + r" \\",
            r"\midrule",
        ]
        lines += [" & ".join(row) + r" \\" for row in body]
        return "\n".join([*lines, r"\bottomrule", r"\end{tabular}"])

    def to_json(self) -> str:
        """All figures, 0 to 1, with differences, p-values and intervals."""
        return json.dumps(asdict(self), indent=2, ensure_ascii=False)

    def to_frame(self) -> pandas.DataFrame:
        """One row for each method and figure."""
        import pandas

        return pandas.DataFrame(
            [
                {
                    "method": row.method,
                    "figure": name,
                    "value": value,
                    **(
                        {}
                        if name not in row.differences
                        else {
                            "difference": row.differences[name].value,
                            "p_value": row.differences[name].p_value,
                            "significant": row.differences[name].significant,
                        }
                    ),
                }
                for row in self.rows
                for name, value in row.figures.items()
            ]
        )

    def _cells(self) -> list[list[str]]:
        many = any(row.vectors_per_document > 1 for row in self.rows)
        header = ["method", *self.columns, *(["vectors/document"] if many else [])]
        return [header, *(self._row(row, many) for row in self.rows)]

    def _row(self, row: ComparedMethod, many: bool) -> list[str]:
        cells = [row.method]
        for name in self.columns:
            value = row.figures.get(name)
            mark = "*" if name in row.differences and row.differences[name].significant else ""
            cells.append(
                "–" if value is None else (f"{value:.3f}{mark}" if name == "PSI" else f"{100 * value:.1f}{mark}")
            )
        return [*cells, *([f"{row.vectors_per_document:.1f}"] if many else [])]

    def _footnotes(self) -> list[str]:
        lines = []
        if len(self.rows) > 1:
            lines.append(
                f"* differs from {self.rows[0].method} (paired t-test over queries, p < {SIGNIFICANT}; "
                "HM, PSI and averages over sets: 95 % paired bootstrap interval without 0)"
            )
        return [*lines, *self.notes]


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
    resamples, seed = base.setting["resamples"], base.setting["seed"]
    sides = []
    p_value = None
    for side in (result, base):
        grouped = group_rows(side.scoring, base.groups, side.per_query)
        if name in ("HM", "PSI"):
            sides.append([_values(members, "ndcg@10") for members in grouped.values()])
            continue
        measure, _, group_name = name.partition(" ")
        if group_name:
            sides.append([_values(grouped[group_name], measure.lower())])
        else:
            sides.append(overall_parts(side.scoring, grouped, side.per_query, measure.lower()))
    own, others = sides
    if name in ("HM", "PSI"):
        summary = harmonic_mean if name == "HM" else position_sensitivity
    elif len(own) == 1:  # a mean of queries has a test; a mean of means, as HM and PSI, has its interval
        p_value = paired_p_value(own[0], others[0])

    def statistic(groups: list[Any]) -> Any:
        return summary(means(groups)) if name in ("HM", "PSI") else overall_mean(groups)

    span = paired_interval(own, others, statistic, resamples, seed)
    apart = span is not None and not span[0] <= 0 <= span[1]
    significant = apart if p_value is None else p_value < SIGNIFICANT
    enough = min(len(values) for values in own) >= FEW
    return Difference(float(statistic(own) - statistic(others)), p_value, span, significant and enough)


def _values(rows: Sequence[QueryScore], measure: str) -> np.ndarray[Any, np.dtype[np.float64]]:
    return np.array([row.scores[measure] for row in rows])
