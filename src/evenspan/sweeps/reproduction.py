"""A table of the paper with our figures, beside the paper's where it has some."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING

from evenspan.evaluation.statistics import Interval
from evenspan.formatting import latex_table, markdown_table

if TYPE_CHECKING:
    import pandas


_OURS = "Ours: 95 % interval over documents, and change from no calibration; * after Holm's correction for all rows"


@dataclass(frozen=True)
class Change:
    """How far a figure of ours lies from that without calibration; significant after Holm's correction for all rows."""

    value: float
    interval: Interval | None
    significant: bool


@dataclass(frozen=True)
class ReproducedRow:
    """One row of a table: what it is of, and each figure as we and the paper have it (×100, PSI as it is).

    `intervals` are of ours, 95 % over documents; `changes` from our row without calibration.
    """

    labels: Mapping[str, str]
    ours: Mapping[str, float]
    paper: Mapping[str, float]
    intervals: Mapping[str, Interval] = field(default_factory=dict)
    changes: Mapping[str, Change] = field(default_factory=dict)

    @property
    def differences(self) -> dict[str, float]:
        """Ours minus the paper's, where both have a figure."""
        return {name: self.ours[name] - value for name, value in self.paper.items() if name in self.ours}

    def cell(self, name: str) -> str:
        """A figure of both, and their difference; of ours alone where the paper has none of the model."""
        cells = [_text(name, self.ours.get(name))]
        cells += [_text(name, self.paper.get(name))] if self.paper else []
        cells += [_text(name, self.differences[name], "+")] if name in self.differences else []
        return " / ".join(cells)

    def change_cell(self, name: str) -> str:
        """A figure of ours with its interval and its change, starred where it is significant."""
        text, change = _text(name, self.ours.get(name)), self.changes.get(name)
        if name in self.intervals:
            text += f" ({' to '.join(_text(name, end) for end in self.intervals[name])})"
        if change is not None:
            text += f", {_text(name, change.value, '+')}{'*' * change.significant}"
        return text


@dataclass(frozen=True)
class Reproduction:
    """A table of the paper with our figures; prints as Markdown."""

    table: str
    model: str
    rows: tuple[ReproducedRow, ...]
    notes: tuple[str, ...] = ()
    claims: tuple[str, ...] = ()

    def __str__(self) -> str:
        paper = any(row.paper for row in self.rows)
        beside = ": ours / paper / difference" if paper else ""
        parts = [f"{self.table}, {self.model}", "", _markdown(self._cells(beside)), ""]
        if any(row.intervals or row.changes for row in self.rows):
            parts += [
                _OURS,
                "",
                _markdown(self._cells("", changes=True)),
                "",
            ]
        return "\n".join(
            [*parts, *(f"- {claim}" for claim in self.claims), *([""] if self.claims else []), *self.notes]
        )

    def to_latex(self) -> str:
        """A LaTeX table for `booktabs`: ours with intervals and changes, and the paper's figures where there are some."""
        tables = [self._cells(": ours / paper / difference" if any(row.paper for row in self.rows) else "")]
        tables += [self._cells("", changes=True)] if any(row.intervals or row.changes for row in self.rows) else []
        notes = [(), (_OURS,)][: len(tables)]
        notes[-1] = (*notes[-1], *self.claims, *self.notes)
        return "\n".join(latex_table(cells, "l" * len(cells[0]), of) for cells, of in zip(tables, notes, strict=True))

    def _cells(self, suffix: str, *, changes: bool = False) -> list[list[str]]:
        labels = list(self.rows[0].labels)
        names = list(dict.fromkeys(name for row in self.rows for name in row.ours))
        body = [
            [*(row.labels.get(label, "") for label in labels), *map(row.change_cell if changes else row.cell, names)]
            for row in self.rows
        ]
        return [[*labels, *(f"{name}{suffix}" for name in names)], *body]

    def to_frame(self) -> pandas.DataFrame:
        """One row for each figure."""
        import pandas

        return pandas.DataFrame(
            {**row.labels, "figure": name, "ours": value}
            | {"paper": row.paper.get(name), "difference": row.differences.get(name)}
            | dict(zip(("low", "high"), row.intervals.get(name, (None, None)), strict=True))
            | {"change": None if (change := row.changes.get(name)) is None else change.value}
            for row in self.rows
            for name, value in row.ours.items()
        )

    def to_json(self) -> str:
        """The rows as JSON."""
        rows = [
            {**row.labels, "ours": dict(row.ours), "paper": dict(row.paper), "intervals": dict(row.intervals)}
            | {"changes": {name: asdict(change) for name, change in row.changes.items()}}
            for row in self.rows
        ]
        values = {"table": self.table, "model": self.model, "rows": rows, "claims": self.claims, "notes": self.notes}
        return json.dumps(values, indent=2, ensure_ascii=False)


def _text(name: str, value: float | None, sign: str = "") -> str:
    digits = 3 if name.startswith("PSI") else 2
    return "–" if value is None or value != value else f"{value:{sign}.{digits}f}"


def _markdown(cells: list[list[str]]) -> str:
    return markdown_table(cells, texts=range(len(cells[0])))
