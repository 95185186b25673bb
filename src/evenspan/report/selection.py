"""Which of many results a report speaks about."""

from __future__ import annotations

from dataclasses import dataclass, replace
from operator import attrgetter

from evenspan.calibration import Calibration
from evenspan.evaluation.comparing import Comparison, compare
from evenspan.evaluation.scores import EvaluationResult
from evenspan.formatting import calibration_named
from evenspan.report.load import Evaluation
from evenspan.sweeps.sweep_result import DETACHED, SweepResult

MOST = 6  # methods in one figure: more cannot be told apart


@dataclass(frozen=True)
class Choice:
    """The calibrated result that words and figures are about, and why this one."""

    result: EvaluationResult
    why: str


def setting_of(result: EvaluationResult) -> Calibration | None:
    """The setting of a result, exact or detached; None for a baseline and the plain model."""
    return calibration_named(result.method.removesuffix(DETACHED))


def choose(evaluation: Evaluation, audited: str | None = None) -> Choice | None:
    """The calibration that was audited, or else the only one, the default one, or the best of them."""
    results = {result.method: result for result in evaluation.results if setting_of(result) is not None}
    if not results:
        return None
    if audited in results:
        return Choice(results[audited], "the calibration that was audited")
    if len(results) == 1:
        return Choice(next(iter(results.values())), "the calibration that was evaluated")
    if str(Calibration()) in results:
        return Choice(results[str(Calibration())], "the default calibration")
    best = max(results.values(), key=attrgetter("ranking_score"))
    exact = results.get(best.method.removesuffix(DETACHED), best)
    return Choice(exact, f"the best of {len(results)} on the same queries, which overestimates it")


def shown(evaluation: Evaluation, audited: str | None = None) -> list[EvaluationResult]:
    """The plain result, the chosen and the best calibration, baselines, then others, as many as fit."""
    plain, choice = evaluation.plain, choose(evaluation, audited)
    calibrated = [result for result in evaluation.results if setting_of(result) is not None]
    exact = [result for result in calibrated if not result.method.endswith(DETACHED)]
    others = [result for result in evaluation.results if result not in calibrated]
    order = [*([plain] if plain else []), *([choice.result] if choice else [])]
    order += [max(exact or calibrated, key=attrgetter("ranking_score"))] if calibrated else []
    order += others + (exact if len(exact) <= MOST else [])
    unique = {result.method: result for result in order}
    return list(unique.values())[:MOST]


def sweep_of(evaluation: Evaluation) -> SweepResult | None:
    """The results as a sweep: at least three settings beside the plain model, on a benchmark with positions."""
    plain = evaluation.plain
    detached = any(result.method.endswith(DETACHED) for result in evaluation.results)
    settings = {
        calibration: result
        for result in evaluation.results
        if (calibration := setting_of(result)) is not None and result.method.endswith(DETACHED) == detached
    }
    if plain is None or plain.psi is None or len(settings) < 3:
        return None
    return SweepResult(plain, settings, {}, detached)


def comparison_of(evaluation: Evaluation, results: list[EvaluationResult]) -> Comparison | None:
    """Some of the results against the first of them; None where the files lack what tests need.

    Of a sweep what is significant is corrected for all of its settings, also for those that are not among these.
    """
    compared = [*results, *(result for result in evaluation.results if sweep_of(evaluation) and result not in results)]
    if not all(result.per_query for result in compared) or not {"resamples", "seed"} <= results[0].setting.keys():
        return None
    table = compare(compared, corrected=len(compared) > len(results) or sweep_of(evaluation) is not None)
    return replace(table, rows=table.rows[: len(results)])
