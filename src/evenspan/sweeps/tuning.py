"""Choose a setting on one part of the queries and confirm it on the rest, or find that none helps."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import replace
from typing import Any

from sentence_transformers import SentenceTransformer

from evenspan.calibration import Calibration
from evenspan.encoding import Encoder, Truncated, truncation
from evenspan.errors import require_evaluation
from evenspan.evaluation.benchmark import Benchmark
from evenspan.evaluation.benchmarks.texts import TooShortError, documents_of, from_texts, is_made_of_texts
from evenspan.evaluation.comparing import Comparison, compare
from evenspan.evaluation.evaluating import evaluate
from evenspan.evaluation.scores import EvaluationResult
from evenspan.evaluation.scoring import Resampling, summarise
from evenspan.evaluation.units import QueryKey
from evenspan.sweeps.grids import paper_grid
from evenspan.sweeps.objectives import Aim
from evenspan.sweeps.splitting import split
from evenspan.sweeps.sweep_result import SweepResult
from evenspan.sweeps.sweeping import sweep
from evenspan.sweeps.tuned import LeftOff, Tuning


def tune(
    model: SentenceTransformer,
    benchmark: Benchmark | Sequence[str],
    calibrations: Sequence[Calibration] | None = None,
    *,
    development: float = 0.5,
    objective: str = "balanced",
    detached: bool = False,
    resamples: int = 1000,
    seed: int = 42,
    **options: Any,
) -> Tuning | LeftOff:
    """Find the best setting for a model on a benchmark, if any beats the plain model.

    Instead of a benchmark, texts can be given: sentences of a sample of them stand in for questions, as in
    `load_benchmark("texts:corpus.jsonl")`. No labels are needed.

    The best setting on a part of the queries is compared with the plain model on the others; all questions on one document
    are on the same side. It is recommended if it is better beyond noise: the paired 95 % bootstrap interval over documents
    lies above 0. The objective is one of:

    - `"balanced"`: HM, unless overall nDCG@10 falls beyond noise, or a position loses more than any other gains, beyond noise;
    - `"hm"`: HM, whatever it costs;
    - `"ndcg"`: nDCG@10 over all queries;
    - `"worst"`: nDCG@10 of the worst position.

    For chunks, and for documents of mixed lengths, tune over `even_grid()`: the paper's baskets make short texts worse.

    `development` is the share of the documents whose queries choose the setting, `seed` that of the split and of the bootstrap.
    With `detached` the choice uses approximate figures; the confirmation is exact. All other arguments are those of `sweep`.
    """
    require_evaluation("Tuning")
    check_decision(development, objective, resamples)
    grid = paper_grid() if calibrations is None else list(calibrations)
    prompt = options.get("document_prompt")
    if not isinstance(benchmark, Benchmark):
        try:
            benchmark = from_texts(benchmark, seed=seed)
        except TooShortError as error:
            return left_off(model, error, grid, prompt)
    cut = truncation(model, documents_of(benchmark), prompt)
    if is_made_of_texts(benchmark.options) and (short := _too_short(model, cut, grid, prompt)):
        return short
    split(benchmark, development, seed)  # refused before any work
    swept = sweep(model, benchmark, grid, detached=detached, resamples=0, seed=seed, **options)
    options.pop("each", None)

    def exact(setting: Calibration) -> EvaluationResult:
        return evaluate(model, benchmark, setting, resamples=0, seed=seed, **options)

    decided = decide(
        benchmark, swept, development=development, objective=objective, resamples=resamples, seed=seed, exact=exact
    )
    return replace(decided, truncation=cut)


def left_off(
    model: SentenceTransformer, error: TooShortError, calibrations: Sequence[Calibration], prompt: str | None = None
) -> LeftOff:
    """The answer for texts that no stand-in can be taken from: they are left alone anyway, or else this is the error."""
    answer = _too_short(model, truncation(model, error.texts, prompt), calibrations, prompt)
    if answer is None:
        raise error
    return answer


def _too_short(
    model: SentenceTransformer, cut: Truncated, calibrations: Sequence[Calibration], prompt: str | None
) -> LeftOff | None:
    """The answer where every setting leaves every document alone."""
    fewest = min((setting.fewest_tokens for setting in calibrations), default=0)
    besides = Encoder(model, prompt=prompt).count_tokens([""])[0]  # what settings may count as content, too
    return LeftOff(cut, len(calibrations), fewest) if cut.longest + besides < fewest else None


def check_decision(development: float, objective: str, resamples: int) -> None:
    """Refuse what nothing can be decided by."""
    if not 0.0 < development < 1.0:
        raise ValueError(f"development must lie between 0 and 1, not {development}.")
    if resamples < 100:
        raise ValueError(f"Tuning needs at least 100 resamples to tell a gain from noise, not {resamples}.")
    Aim.named(objective)


def decide(
    benchmark: Benchmark,
    swept: SweepResult,
    *,
    development: float = 0.5,
    objective: str = "balanced",
    resamples: int = 1000,
    seed: int = 42,
    exact: Callable[[Calibration], EvaluationResult] | None = None,
) -> Tuning:
    """What `tune` makes of a sweep that is there already; `exact` evaluates a setting of which only an approximation is."""
    check_decision(development, objective, resamples)
    if not swept.results:
        reasons = "; ".join(f"{setting}: {reason}" for setting, reason in swept.failures.items())
        raise RuntimeError(f"No setting could be evaluated. {reasons}")
    resampling = Resampling(resamples, seed)
    keys = {(row.collection, row.query) for row in swept.plain.per_query}
    choosing = split(benchmark, development, seed)
    confirming = keys - choosing

    def part(result: EvaluationResult, wanted: Set[QueryKey]) -> EvaluationResult:
        rows = tuple(row for row in result.per_query if (row.collection, row.query) in wanted)
        setting = {**result.setting, "resamples": resamples, "seed": seed}
        return replace(result, per_query=rows, setting=setting, **summarise(benchmark, rows, resampling))

    aim = Aim(Aim.named(objective), swept.plain.psi is not None)
    on_development = {setting: part(result, choosing) for setting, result in swept.results.items()}
    plain = part(swept.plain, choosing)
    best, development_table, passed_over = _best(aim, plain, on_development)
    candidate = exact(best) if swept.detached and exact is not None else swept.results[best]
    others = part(swept.plain, confirming), part(candidate, confirming)
    confirmation = compare(others)
    gain, losses = aim.gain(*others, confirmation), aim.losses(*others, confirmation)
    better = aim.score(on_development[best]) > aim.score(plain)
    confirmed = better and gain.significant and gain.value > 0
    if aim.limited and not losses:  # either half may be too few to show a loss
        whole = [part(result, keys) for result in (swept.plain, candidate)]
        for where, (one, other) in {
            "on the development queries": (plain, on_development[best]),
            "over all queries": whole,
        }.items():
            losses = losses or tuple(f"{loss} {where}" for loss in aim.losses(one, other, compare([one, other])))
    use = best if confirmed and not (aim.limited and losses) else None
    losses = losses if confirmed else ()
    return Tuning(use, best, better, development_table, confirmation, swept, aim, gain, losses, passed_over=passed_over)


def _best(
    aim: Aim, plain: EvaluationResult, results: Mapping[Calibration, EvaluationResult]
) -> tuple[Calibration, Comparison, str | None]:
    """The best setting with acceptable losses, or if there is none the best one; its comparison with plain.

    And the losses of a better one that is not acceptable.
    """
    ranked = sorted(results, key=lambda setting: -aim.score(results[setting]))
    first = compare([plain, results[ranked[0]]])
    losses = aim.losses(plain, results[ranked[0]], first) if aim.limited else ()
    for setting in ranked[1:] if losses else ():
        if aim.score(results[setting]) <= aim.score(plain):
            break  # what costs less gains nothing
        compared = compare([plain, results[setting]])
        if not aim.losses(plain, results[setting], compared):
            return setting, compared, f"{ranked[0]}, where {'; '.join(losses)}"
    return ranked[0], first, None
