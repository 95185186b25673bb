"""What a sweep found."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from evenspan.calibration import Calibration
from evenspan.drawing.figure import save
from evenspan.errors import require_extra
from evenspan.evaluation.comparing import Comparison, compare
from evenspan.evaluation.scores import EvaluationResult, file_name, remove_results
from evenspan.sweeps.figures import PARTS, parts_of, strengths_figure, trade_off_figure

if TYPE_CHECKING:
    import pandas

_FIGURES = ("trade_off", "strengths")
DETACHED = " (detached)"  # behind a calibration's string, in the name of a method that approximates it


@dataclass(frozen=True)
class SweepResult:
    """One evaluation for each setting.

    Attributes:
        plain: the model without calibration.
        results: the model under each setting.
        failures: settings that could not be evaluated, with the reason.
        detached: whether the figures of the settings are approximate.
        rechecked: the best setting of a detached sweep, evaluated exactly.
    """

    plain: EvaluationResult
    results: Mapping[Calibration, EvaluationResult]
    failures: Mapping[Calibration, str]
    detached: bool = False
    rechecked: EvaluationResult | None = None

    @property
    def best(self) -> Calibration | None:
        """The setting with the highest HM (nDCG@10 where there are no positions)."""
        return max(self.results, key=lambda setting: self.results[setting].ranking_score, default=None)

    @cached_property
    def comparison(self) -> Comparison:
        """All settings against the plain model, what is significant corrected for their number."""
        return compare(self._all(), corrected=True)

    def __str__(self) -> str:
        lines = [str(self.comparison)]
        if self.detached:
            lines.append(
                "Detached: approximate, calibrated in the context of the plain pass. The last row is the best setting, exact."
            )
        lines += [f"not evaluated: {setting}: {reason}" for setting, reason in self.failures.items()]
        return "\n".join(lines)

    def to_frame(self) -> pandas.DataFrame:
        """One row for each setting, the plain model first: its parts, nDCG@10 by position, HM and PSI."""
        import pandas

        return pandas.DataFrame(
            {"method": result.method}
            | dict(zip(PARTS, parts_of(setting), strict=True))
            | {name: group.ndcg for name, group in result.groups.items()}
            | {name: getattr(result, name) for name in ("ndcg", "recall", "harmonic_mean", "psi")}
            | {"detached": self.detached and setting is not None}
            for setting, result in [(None, self.plain), *self.results.items()]
        )

    def write(self, folder: str | Path, *, figures: bool = True) -> None:
        """Write every result, the table and, where there are positions, both figures as PNG and SVG with their data."""
        drawn = figures and self.plain.psi is not None and bool(self.results)
        if drawn:
            require_extra("report", "The figures of a sweep", "matplotlib")
        target = Path(folder)
        target.mkdir(parents=True, exist_ok=True)
        remove_sweep(target)
        for result in self._all():
            result.write(target / f"{file_name(result.method)}.json")
        self.to_frame().to_csv(target / "sweep.csv", index=False)
        (target / "sweep.md").write_text(self.comparison.to_markdown() + "\n", encoding="utf-8")
        if drawn:
            for draw, key in zip((trade_off_figure, strengths_figure), _FIGURES, strict=True):
                save(draw(self, key), target)

    def _all(self) -> list[EvaluationResult]:
        return [self.plain, *self.results.values(), *([self.rechecked] if self.rechecked else [])]


def remove_sweep(folder: Path) -> None:
    """Remove what a former sweep has written to a folder, by its table."""
    table = folder / "sweep.csv"
    if not table.is_file():
        return
    with table.open(encoding="utf-8", newline="") as file:
        methods = [row.get("method") or "" for row in csv.DictReader(file)]
    remove_results(folder, [*methods, *(method.removesuffix(DETACHED) for method in methods)])
    for name in ("sweep.csv", "sweep.md", *(f"{key}.{kind}" for key in _FIGURES for kind in ("svg", "png", "csv"))):
        (folder / name).unlink(missing_ok=True)
