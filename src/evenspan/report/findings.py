"""What was found, in words and figures: truncation first, because it is often the larger loss."""

from __future__ import annotations

from dataclasses import dataclass, replace

from evenspan.auditing.audit_result import Audit
from evenspan.auditing.findings import Finding, Tone, audit_findings, calibration_effect
from evenspan.evaluation.scores import EvaluationResult
from evenspan.evaluation.scoring import CHANCE
from evenspan.formatting import count, counted, listed, method_name, plain, points, share, signed, tame
from evenspan.report.load import Evaluation, Subject
from evenspan.report.selection import choose, comparison_of

_WHERE = {"beginning": "at the beginning", "middle": "in the middle", "end": "at the end"}
_LEADS: dict[Tone, str] = {
    "good": "Calibration helps overall.",
    "bad": "Calibration makes results worse overall.",
    "neutral": "Overall, calibration makes no difference beyond noise.",
}
_EVEN = 0.02  # nDCG@10: positions that differ by less are found equally well


def subject_findings(subject: Subject) -> list[Finding]:
    """Everything worth saying about a model, truncation first."""
    of_audits = []
    for path, audit in subject.audits:
        prefix = f"{name}: " if (name := subject.audit_name(path)) else ""
        of_audits.append([replace(finding, lead=prefix + finding.lead) for finding in audit_findings(audit)])
    ordered = [first for first, *_ in of_audits] + [finding for _, *rest in of_audits for finding in rest]
    ordered += [Finding("Advice:", advice.sentence) for _, advice in subject.advice]
    ordered += [Finding("Tuning:", f"{answer.answer} {answer.rests_on}".rstrip()) for _, answer in subject.tunings]
    for evaluation in subject.evaluations:
        ordered += _positions(evaluation) + _calibration(evaluation, subject.audited_calibration)
    return list(dict.fromkeys(ordered))


def _on(evaluation: Evaluation) -> str:
    queries = len(evaluation.results[0].per_query)
    return f"On {tame(evaluation.benchmark)}" + (f" ({count(queries)} queries)" if queries else "")


def _positions(evaluation: Evaluation) -> list[Finding]:
    """Whether the plain model finds answers equally well wherever they are."""
    start = evaluation.plain
    if start is None or start.psi is None:
        return []
    scores = {name: group.ndcg for name, group in start.groups.items()}
    best, worst = max(scores, key=scores.__getitem__), min(scores, key=scores.__getitem__)
    where = {name: _WHERE.get(name, f"in “{tame(name)}”") for name in scores}
    text = (
        f"{_on(evaluation)}, nDCG@10 of the plain model is {100 * scores[best]:.1f} for answers {where[best]} and "
        f"{100 * scores[worst]:.1f} for those {where[worst]} (PSI {start.psi:.3f}; 0 means even{_chance(start)})."
    )
    if start.more.get("psi_p_value", 0.0) > CHANCE:
        return [Finding("No difference between positions was found beyond chance.", text, "neutral")]
    if scores[best] - scores[worst] < _EVEN:
        return [Finding("Answers are found equally well wherever they are.", text, "good")]
    return [Finding("How well an answer is found depends on where it is.", text, "bad")]


def _chance(result: EvaluationResult) -> str:
    """PSI by chance, and its interval, where they are known."""
    interval, floor = result.intervals.get("psi"), result.more.get("psi_floor")
    told = f", {floor:.3f} is chance" if floor is not None else ""
    return told + (f", 95 % interval {interval[0]:.3f} to {interval[1]:.3f}" if interval and told else "")


def _calibration(evaluation: Evaluation, audited: str | None) -> list[Finding]:
    """What calibration gains, and what it costs."""
    start, choice = evaluation.plain, choose(evaluation, audited)
    compared = comparison_of(evaluation, [start, choice.result]) if start is not None and choice is not None else None
    if choice is None or compared is None:
        return []
    differences = compared.rows[1].differences
    main = "HM" if "HM" in differences else "nDCG@10"
    moves = {
        name.removeprefix("nDCG@10 "): difference.value
        for name, difference in differences.items()
        if difference.significant and name.startswith("nDCG@10 ")
    }
    gains, costs = (
        [f"{tame(name)} {points(move)}" for name, move in moves.items() if sign * move > 0] for sign in (1, -1)
    )
    change, sure = differences[main].value, differences[main].significant
    text = f"{_on(evaluation)}, {method_name(choice.result.method)} ({choice.why}) changes {main} by {points(change)} points"
    text += "." if sure else ", which is within noise."
    text += f" Gains: {listed(gains)}." if gains else " No position gains beyond noise."
    tone = _tone(change if sure else 0)
    findings = [Finding(_LEADS[tone], text, tone)]
    if costs:
        text = (
            f"{_on(evaluation)}, with the same calibration: {listed(costs)} points of nDCG@10. If most answers are "
            "there, weigh this against the gains, or use a lower strength."
        )
        findings.append(Finding("Some positions lose.", text, "bad"))
    return findings


@dataclass(frozen=True)
class Tile:
    """One figure to be seen at a glance."""

    label: str
    value: str
    note: str
    tone: Tone = "neutral"


def tiles(subject: Subject) -> list[Tile]:
    """The figures that matter most."""
    shown = []
    for path, audit in subject.audits:
        shown += _audit_tiles(audit, f"{name}: " if (name := subject.audit_name(path)) else "")
    for evaluation in subject.evaluations:
        shown += _evaluation_tiles(evaluation, subject.audited_calibration)
    return shown


def _audit_tiles(audit: Audit, prefix: str) -> list[Tile]:
    cut = audit.truncation
    note = f"{count(cut.cut)} of {counted(cut.documents, 'document')} cut off"
    shown = [Tile(f"{prefix}text never read", share(cut.unread, cut.tokens), note, "bad" if cut.unread else "good")]
    before, after = audit.representations
    if before is None:
        return shown
    slope = signed(before.slope.value)
    note, tone = f"slope {slope} without calibration", _tone(-1 if before.degree else 1)
    shown.append(Tile(f"{prefix}position bias", before.verdict, note, tone))
    effect = calibration_effect(audit)
    if after is None or effect is None:
        return shown
    note = f"slope {signed(after.slope.value)} instead of {slope}" + ", within noise" * (effect == "within noise")
    if effect == "unchanged":
        note = f"slope {slope}: nothing changes"
    # A verdict that stays the same is no success, even if the slope is smaller.
    better = effect in ("more even", "turned around") and after.verdict != before.verdict
    return [*shown, Tile(f"{prefix}after calibration", after.verdict, note, _tone(better - (effect == "less even")))]


def _evaluation_tiles(evaluation: Evaluation, audited: str | None) -> list[Tile]:
    start, choice = evaluation.plain, choose(evaluation, audited)
    if start is None or choice is None or start.harmonic_mean is None or choice.result.harmonic_mean is None:
        return []
    end = choice.result
    change = end.ranking_score - start.ranking_score
    value = f"{100 * start.ranking_score:.1f} → {100 * end.ranking_score:.1f}"
    shown = [Tile("All positions (HM)", value, f"{points(change)} on {tame(evaluation.benchmark)}", _tone(change))]
    moves = {name: end.groups[name].ndcg - group.ndcg for name, group in start.groups.items()}
    lowest = min(moves, key=moves.__getitem__)
    if moves[lowest] < 0:
        value = f"{100 * start.groups[lowest].ndcg:.1f} → {100 * end.groups[lowest].ndcg:.1f}"
        shown.append(Tile(f"Cost: {tame(lowest)}", value, f"{points(moves[lowest])} nDCG@10", "bad"))
    if start.psi is not None and end.psi is not None:
        value = f"{plain(start.psi, 2)} → {plain(end.psi, 2)}"
        shown.append(Tile("Unevenness (PSI)", value, "0: every position equal", _tone(start.psi - end.psi)))
    return shown


def _tone(change: float) -> Tone:
    return "good" if change > 0 else "bad" if change < 0 else "neutral"
