"""What a setting is chosen by, and what it may cost."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from evenspan.evaluation.comparing import Comparison, Difference, difference_of
from evenspan.evaluation.measures import lowest
from evenspan.evaluation.scores import EvaluationResult
from evenspan.evaluation.statistics import Statistic

Objective = Literal["balanced", "hm", "ndcg", "worst"]
OBJECTIVES: tuple[Objective, ...] = get_args(Objective)


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
        return difference_of(lowest, plain, result)

    @property
    def limited(self) -> bool:
        """Whether a setting may cost nothing of what `losses` finds."""
        return self.objective == "balanced" and self.positions

    def losses(self, plain: EvaluationResult, result: EvaluationResult, comparison: Comparison) -> tuple[str, ...]:
        """What a setting costs, in words, and `balanced` does not accept.

        That is overall nDCG@10 that falls beyond noise, and a position that loses more than any other gains, beyond noise:
        a loss of nine points against a gain of eight and a half is none, where documents drawn anew turn it round.
        """
        if not self.positions:
            return ()
        differences = comparison.rows[-1].differences
        overall = differences["nDCG@10"]
        losses = [f"overall nDCG@10 falls by {_points(overall)}"] if overall.significant and overall.value < 0 else []
        places = {name: place for place, name in enumerate(plain.groups)}
        moves = {name: differences[f"nDCG@10 {name}"] for name in places}
        gaining = max(moves, key=lambda name: moves[name].value)
        most = max(moves[gaining].value, 0.0)
        for name, by in moves.items():
            balance = difference_of(_sum_of(places[name], *([places[gaining]] if most else [])), plain, result)
            if by.significant and balance.significant and balance.value < 0:
                losses.append(f"{name!r} loses {_points(by)}, and no position gains more than {100 * most:.2f}")
        return tuple(losses)


def _sum_of(*places: int) -> Statistic:
    return lambda means: means[list(places)].sum(axis=0)


def _points(difference: Difference) -> str:
    interval = difference.interval
    told = "" if interval is None else f" (95 % interval {100 * interval[0]:+.2f} to {100 * interval[1]:+.2f})"
    return f"{-100 * difference.value:.2f} points{told}"
