"""Which of many results a report speaks about."""

from __future__ import annotations

from dataclasses import dataclass

from evenspan.calibration import Calibration
from evenspan.evaluation.comparing import Comparison, compare
from evenspan.evaluation.scores import EvaluationResult
from evenspan.formatting import DETACHED, calibration_of
from evenspan.report.load import Evaluation
from evenspan.sweeps.sweep_result import SweepResult, figure

MOST = 6  # methods in one figure: more cannot be told apart


@dataclass(frozen=True)
class Choice:
    """The calibrated result that words and figures are about, and why this one."""

    result: EvaluationResult
    why: str


def plain_of(evaluation: Evaluation) -> EvaluationResult | None:
    """The model without calibration."""
    first = evaluation.results[0]
    return first if first.method == "none" else None


def choose(evaluation: Evaluation, wanted: str | None = None) -> Choice | None:
    """The calibration that was audited, or else the only one, the default one, or the best of them."""
    results = {one.method: one for one in evaluation.results if calibration_of(one.method) is not None}
    if not results:
        return None
    if wanted in results:
        return Choice(results[wanted], "the calibration that was audited")
    if len(results) == 1:
        return Choice(next(iter(results.values())), "the calibration that was evaluated")
    if str(Calibration()) in results:
        return Choice(results[str(Calibration())], "the default calibration")
    best = max(results.values(), key=figure)
    exact = results.get(best.method.removesuffix(DETACHED), best)
    return Choice(exact, f"the best of {len(results)} by the same queries, which flatters it")


def shown(evaluation: Evaluation, wanted: str | None = None) -> list[EvaluationResult]:
    """The plain result, the chosen and the best calibration, baselines, then others, as many as fit."""
    plain, choice = plain_of(evaluation), choose(evaluation, wanted)
    calibrated = [one for one in evaluation.results if calibration_of(one.method) is not None]
    exact = [one for one in calibrated if not one.method.endswith(DETACHED)]
    others = [one for one in evaluation.results if one not in calibrated]
    order = [*([plain] if plain else []), *([choice.result] if choice else [])]
    order += [max(exact or calibrated, key=figure)] if calibrated else []
    order += others + (exact if len(exact) <= MOST else [])
    unique = {one.method: one for one in order}
    return list(unique.values())[:MOST]


def sweep_of(evaluation: Evaluation) -> SweepResult | None:
    """The results as a sweep: at least three settings beside the plain model, on a benchmark with positions."""
    plain = plain_of(evaluation)
    detached = any(one.method.endswith(DETACHED) for one in evaluation.results)
    found = {
        calibration: one
        for one in evaluation.results
        if (calibration := calibration_of(one.method)) is not None and one.method.endswith(DETACHED) == detached
    }
    if plain is None or plain.psi is None or len(found) < 3:
        return None
    return SweepResult(plain, found, {}, detached)


def comparison_of(results: list[EvaluationResult]) -> Comparison | None:
    """With the significance of differences; None where the files lack what it needs."""
    if not all(one.per_query for one in results) or not {"resamples", "seed"} <= results[0].setting.keys():
        return None
    return compare(results)
