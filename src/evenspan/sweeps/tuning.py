"""Choose a setting on one part of the queries, confirm it on the rest, or say that it is better left off."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sentence_transformers import SentenceTransformer

from evenspan.calibration import Calibration
from evenspan.evaluation.benchmark import Benchmark
from evenspan.evaluation.comparing import Comparison, Difference, compare
from evenspan.evaluation.evaluating import evaluate, require_evaluation
from evenspan.evaluation.scores import EvaluationResult
from evenspan.evaluation.scoring import Resampling, summarise
from evenspan.sweeps.objectives import Aim, Objective
from evenspan.sweeps.splitting import split
from evenspan.sweeps.sweep_result import SweepResult
from evenspan.sweeps.sweeping import sweep


@dataclass(frozen=True)
class Tuning:
    """What tuning found.

    Attributes:
        calibration: what to use, as `calibrate` takes it; None: leave it off.
        candidate: the best setting on the development queries, of those that cost no more than they may if there are any.
        chosen: whether it was better there than the plain model.
        development: plain and candidate on the queries that chose.
        confirmation: plain and candidate on the other queries, with the significance of the difference.
        sweep: all settings on all queries.
        aim: what was chosen by, see `tune`.
        gain: of the candidate in what counts (HM; nDCG@10 where there are no positions) on the confirming queries.
        losses: what a candidate costs that is better there, in words; with `balanced` the reason to leave it off.
        passed_over: the setting that was better by HM than the candidate on the development queries, and what it cost there.
    """

    calibration: Calibration | None
    candidate: Calibration
    chosen: bool
    development: Comparison
    confirmation: Comparison
    sweep: SweepResult
    aim: Aim
    gain: Difference
    losses: tuple[str, ...] = ()
    passed_over: str | None = None

    @property
    def objective(self) -> Objective:
        """What was chosen by."""
        return self.aim.objective

    def __str__(self) -> str:
        gain, aim, queries = self.gain, self.aim, "on the development queries"
        measured = f"{aim.figure} {100 * gain.value:+.2f}"
        if gain.interval is not None:
            measured += f", 95 % interval {100 * gain.interval[0]:+.2f} to {100 * gain.interval[1]:+.2f}"
        best = f"the best of {len(self.sweep.results)} settings {queries}"
        best += ", of those that cost no more than they may" if self.passed_over else ""
        if self.calibration is not None:
            answer = f"Use {self.calibration}: {best}, and on the others {measured}."
            if aim.limited:
                answer += " Overall nDCG@10 does not fall beyond noise, and no position loses more than another gains."
            answer += f" It has its price: {'; '.join(self.losses)}." if self.losses else ""
        elif self.losses:
            answer = f"Leave it off: {self.candidate} was {best}, and has on the others {measured}, but it costs more than it "
            answer += f"may: {'; '.join(self.losses)}. To go by HM alone, choose the objective 'hm' (--objective hm)."
        elif self.chosen:
            answer = (
                f"Leave it off: {self.candidate} was {best}, but on the others its gain is within noise ({measured})."
            )
        else:
            answer = (
                f"Leave it off: {queries} none of {len(self.sweep.results)} settings was better than the plain model. "
            )
            answer += f"The best of them, {self.candidate}, has on the others {measured}."
        answer += f" Not chosen, though better by {aim.figure}: {self.passed_over}." if self.passed_over else ""
        return f"{answer}\n\nDevelopment queries\n{self.development}\n\nConfirming queries\n{self.confirmation}"


def tune(
    model: SentenceTransformer,
    benchmark: Benchmark,
    calibrations: Sequence[Calibration] | None = None,
    *,
    development: float = 0.5,
    objective: str = "balanced",
    detached: bool = False,
    resamples: int = 1000,
    seed: int = 42,
    **options: Any,
) -> Tuning:
    """Find the setting for a model on a benchmark, or find that the plain model is as good.

    The best setting on a part of the queries is compared with the plain model on the others; all questions on one document
    are on the same side. It is recommended if it is better beyond noise: a paired bootstrap interval of 95 % over documents
    that lies above 0. What counts is the objective:

    - `"balanced"`: HM, unless overall nDCG@10 falls beyond noise, or a position loses, beyond noise, more than any other gains;
    - `"hm"`: HM, whatever it costs;
    - `"ndcg"`: nDCG@10 over all queries;
    - `"worst"`: nDCG@10 of the position that is found worst.

    For chunks, and for documents of mixed lengths, tune over `even_grid()`: the paper's baskets make short texts worse.

    `development` is the share of the documents whose queries choose, `seed` that of the split and of the bootstrap. With
    `detached` the choice is among approximate figures; what is confirmed is exact. All other arguments are those of `sweep`.
    """
    require_evaluation("Tuning")
    if not 0.0 < development < 1.0:
        raise ValueError(f"development must lie between 0 and 1, not {development}.")
    if resamples < 100:
        raise ValueError(f"Tuning needs at least 100 resamples to tell a gain from noise, not {resamples}.")
    wanted = Aim.named(objective)
    resampling = Resampling(resamples, seed)
    chosen = split(benchmark, development, seed)
    swept = sweep(model, benchmark, calibrations, detached=detached, resamples=0, seed=seed, **options)

    def part(result: EvaluationResult, *, choosing: bool) -> EvaluationResult:
        rows = tuple(row for row in result.per_query if ((row.collection, row.query) in chosen) == choosing)
        setting = {**result.setting, "resamples": resamples, "seed": seed}
        return replace(result, per_query=rows, setting=setting, **summarise(benchmark, rows, resampling))

    aim = Aim(wanted, swept.plain.psi is not None)
    if not swept.results:
        reasons = "; ".join(f"{setting}: {reason}" for setting, reason in swept.failures.items())
        raise RuntimeError(f"No setting could be evaluated. {reasons}")
    on_development = {setting: part(result, choosing=True) for setting, result in swept.results.items()}
    plain = part(swept.plain, choosing=True)
    best, development_table, passed_over = _best(aim, plain, on_development)
    exact = swept.results[best]
    if swept.detached:
        options.pop("each", None)
        exact = evaluate(model, benchmark, best, resamples=0, seed=seed, **options)
    others = [part(result, choosing=False) for result in (swept.plain, exact)]
    confirmation = compare(others)
    gain, losses = aim.gain(others[0], others[1], confirmation), aim.losses(confirmation)
    better = aim.score(on_development[best]) > aim.score(plain)
    found = better and gain.significant and gain.value > 0
    if aim.limited and not losses:  # the others are half of the data, and may be too few to show a loss
        losses = tuple(f"{loss} on the development queries" for loss in aim.losses(development_table))
    use = best if found and not (aim.limited and losses) else None
    losses = losses if found else ()
    return Tuning(use, best, better, development_table, confirmation, swept, aim, gain, losses, passed_over)


def _best(
    aim: Aim, plain: EvaluationResult, results: Mapping[Calibration, EvaluationResult]
) -> tuple[Calibration, Comparison, str | None]:
    """The best setting that costs no more than it may, or if there is none the best one; its comparison with plain.

    Of one that is better and costs more than it may, what it costs.
    """
    ranked = sorted(results, key=lambda setting: -aim.score(results[setting]))
    first = compare([plain, results[ranked[0]]])
    losses = aim.losses(first) if aim.limited else ()
    for setting in ranked[1:] if losses else ():
        if aim.score(results[setting]) <= aim.score(plain):
            break  # what costs less gains nothing
        compared = compare([plain, results[setting]])
        if not aim.losses(compared):
            return setting, compared, f"{ranked[0]}, where {'; '.join(losses)}"
    return ranked[0], first, None
