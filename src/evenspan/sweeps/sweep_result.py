"""What a sweep found."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from evenspan.calibration import Calibration
from evenspan.evaluation.comparing import Comparison, compare
from evenspan.evaluation.scores import EvaluationResult, file_name

if TYPE_CHECKING:
    import pandas


def figure(result: EvaluationResult) -> float:
    """What settings are ranked by: HM, or nDCG@10 where a benchmark has no positions."""
    return result.ndcg if result.harmonic_mean is None else result.harmonic_mean


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
        return max(self.results, key=lambda one: figure(self.results[one]), default=None)

    @cached_property
    def comparison(self) -> Comparison:
        """All settings against the plain model."""
        return compare([self.plain, *self.results.values(), *([self.rechecked] if self.rechecked else [])])

    def __str__(self) -> str:
        lines = [str(self.comparison)]
        if self.detached:
            lines.append(
                "Detached: approximate, calibrated in the context of the plain pass. The last row is the best setting, exact."
            )
        lines += [f"not evaluated: {one}: {reason}" for one, reason in self.failures.items()]
        return "\n".join(lines)

    def to_frame(self) -> pandas.DataFrame:
        """One row for each setting, the plain model first: its parts, nDCG@10 by position, HM and PSI."""
        import pandas

        rows = []
        for one, result in [(None, self.plain), *self.results.items()]:
            rows.append(
                {
                    "method": result.method,
                    "variant": None if one is None else one.variant,
                    "strength": 0.0 if one is None else one.strength,
                    "layers": None if one is None else str(one.layers),
                    "basket_size": None if one is None else one.basket_size,
                    **{name: group.ndcg for name, group in result.groups.items()},
                    "ndcg": result.ndcg,
                    "recall": result.recall,
                    "harmonic_mean": result.harmonic_mean,
                    "psi": result.psi,
                    "detached": self.detached and one is not None,
                }
            )
        return pandas.DataFrame(rows)

    def write(self, folder: str | Path) -> None:
        """Write every result, the table and, where there are positions, both figures as PNG and SVG."""
        from evenspan.sweeps.figures import plot_strengths, plot_trade_off

        target = Path(folder)
        target.mkdir(parents=True, exist_ok=True)
        for result in [self.plain, *self.results.values(), *([self.rechecked] if self.rechecked else [])]:
            result.write(target / f"{file_name(result.method)}.json")
        self.to_frame().to_csv(target / "sweep.csv", index=False)
        (target / "sweep.md").write_text(self.comparison.to_markdown() + "\n", encoding="utf-8")
        if self.plain.psi is not None and self.results:
            for ending in ("png", "svg"):
                plot_trade_off(self, target / f"trade_off.{ending}")
                plot_strengths(self, target / f"strengths.{ending}")
