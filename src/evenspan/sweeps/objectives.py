"""What a setting is chosen by, and what it may cost."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from evenspan.evaluation.comparing import Comparison, Difference, difference_of
from evenspan.evaluation.sampling import Values
from evenspan.evaluation.scores import EvaluationResult

Objective = Literal["balanced", "hm", "ndcg", "worst"]
OBJECTIVES: tuple[Objective, ...] = get_args(Objective)
_POSITION = "nDCG@10 "  # in front of the name of a position


@dataclass(frozen=True)
class Aim:
    """An objective on one benchmark; without positions every objective is nDCG@10."""

    objective: Objective
    positions: bool

    @staticmethod
    def named(objective: str) -> Objective:
        """An objective by its name; a `ValueError` if there is none."""
        for known in OBJECTIVES:
            if objective == known:
                return known
        raise ValueError(f"objective must be one of {', '.join(OBJECTIVES)}, not {objective!r}.")

    @property
    def figure(self) -> str:
        """The figure that counts, as people read it."""
        if not self.positions or self.objective == "ndcg":
            return "nDCG@10"
        return "the worst position's nDCG@10" if self.objective == "worst" else "HM"

    def score(self, result: EvaluationResult) -> float:
        """What settings are ranked by."""
        if self.figure == "nDCG@10":
            return result.ndcg
        return result.ranking_score if self.figure == "HM" else min(group.ndcg for group in result.groups.values())

    def gain(self, plain: EvaluationResult, result: EvaluationResult, comparison: Comparison) -> Difference:
        """How far a result is ahead of the plain model in what counts."""
        if self.figure in comparison.rows[-1].differences:
            return comparison.rows[-1].differences[self.figure]
        return difference_of(_lowest, plain, result)

    @property
    def limited(self) -> bool:
        """Whether a setting may cost nothing of what `losses` finds."""
        return self.objective == "balanced" and self.positions

    def losses(self, comparison: Comparison) -> tuple[str, ...]:
        """What a setting costs, in words, and `balanced` does not accept.

        That is overall nDCG@10 that falls beyond noise, and a position that loses, beyond noise, more than any other gains.
        """
        if not self.positions:
            return ()
        differences = comparison.rows[-1].differences
        overall = differences["nDCG@10"]
        losses = [f"overall nDCG@10 falls by {_points(overall)}"] if overall.significant and overall.value < 0 else []
        moves = {name: by for name, by in differences.items() if name.startswith(_POSITION)}
        most = max((by.value for by in moves.values()), default=0.0)
        for name, by in moves.items():
            if by.significant and -by.value > max(most, 0.0):
                gains = f"no position gains more than {100 * max(most, 0.0):.2f}"
                losses.append(f"{name.removeprefix(_POSITION)!r} loses {_points(by)}, and {gains}")
        return tuple(losses)


def _lowest(means: Values) -> Values:
    lowest: Values = means.min(axis=0)
    return lowest


def _points(difference: Difference) -> str:
    interval = difference.interval
    told = "" if interval is None else f" (95 % interval {100 * interval[0]:+.2f} to {100 * interval[1]:+.2f})"
    return f"{-100 * difference.value:.2f} points{told}"
