"""A table of the paper with our figures beside the paper's."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas


@dataclass(frozen=True)
class ReproducedRow:
    """One row of a table: what it is of, and each figure as we and the paper have it (×100, PSI as it is)."""

    labels: Mapping[str, str]
    ours: Mapping[str, float]
    paper: Mapping[str, float]

    @property
    def differences(self) -> dict[str, float]:
        """Ours minus the paper's, where both have a figure."""
        return {name: self.ours[name] - value for name, value in self.paper.items() if name in self.ours}

    def cell(self, name: str) -> str:
        """A figure of both, and their difference."""
        digits = 3 if name.startswith("PSI") else 2
        both = (self.ours.get(name), self.paper.get(name))
        cells = ["–" if value is None or value != value else f"{value:.{digits}f}" for value in both]
        if name in self.differences:
            cells.append(f"{self.differences[name]:+.{digits}f}")
        return " / ".join(cells)


@dataclass(frozen=True)
class Reproduction:
    """A table of the paper with our figures; prints as Markdown."""

    table: str
    model: str
    rows: tuple[ReproducedRow, ...]
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        labels = list(self.rows[0].labels)
        names = list(dict.fromkeys(name for row in self.rows for name in row.ours))
        header = [*labels, *(f"{name}: ours / paper / difference" for name in names)]
        lines = [header, ["---"] * len(header)]
        lines += [[*(row.labels.get(label, "") for label in labels), *map(row.cell, names)] for row in self.rows]
        table = [f"| {' | '.join(cells)} |" for cells in lines]
        return "\n".join([f"{self.table}, {self.model}", "", *table, "", *self.notes])

    def to_frame(self) -> pandas.DataFrame:
        """One row for each figure."""
        import pandas

        return pandas.DataFrame(
            {**row.labels, "figure": name, "ours": value}
            | {"paper": row.paper.get(name), "difference": row.differences.get(name)}
            for row in self.rows
            for name, value in row.ours.items()
        )

    def to_json(self) -> str:
        """The rows as JSON."""
        rows = [{**row.labels, "ours": dict(row.ours), "paper": dict(row.paper)} for row in self.rows]
        return json.dumps({"table": self.table, "model": self.model, "rows": rows, "notes": self.notes}, indent=2)
