"""What was found, in plain words: what is never read first, because it is often the larger loss."""

from __future__ import annotations

from dataclasses import replace

from evenspan.auditing.findings import Finding, Tone, audit_findings
from evenspan.formatting import count, listed, method_name, points, tame
from evenspan.report.load import Evaluation, Subject
from evenspan.report.selection import choose, comparison_of

_WHERE = {"beginning": "at the beginning", "middle": "in the middle", "end": "at the end"}
_LEADS: dict[Tone, str] = {
    "good": "Calibration helps overall.",
    "bad": "Calibration does harm overall.",
    "neutral": "Overall, calibration makes no difference beyond noise.",
}
_EVEN = 0.02  # nDCG@10: positions that differ by less are found equally well


def subject_findings(subject: Subject) -> list[Finding]:
    """Everything worth saying about a model, what is never read first."""
    of_audits = []
    for path, audit in subject.audits:
        prefix = f"{name}: " if (name := subject.audit_name(path)) else ""
        of_audits.append([replace(finding, lead=prefix + finding.lead) for finding in audit_findings(audit)])
    ordered = [first for first, *_ in of_audits] + [finding for _, *rest in of_audits for finding in rest]
    for evaluation in subject.evaluations:
        ordered += _positions(evaluation) + _calibration(evaluation, subject.audited_calibration)
    return list(dict.fromkeys(ordered))


def _on(evaluation: Evaluation) -> str:
    queries = len(evaluation.results[0].per_query)
    return f"On {tame(evaluation.benchmark)}" + (f" ({count(queries)} queries)" if queries else "")


def _positions(evaluation: Evaluation) -> list[Finding]:
    """Whether the plain model finds answers equally well wherever they stand."""
    plain = evaluation.plain
    if plain is None or plain.psi is None:
        return []
    scores = {name: group.ndcg for name, group in plain.groups.items()}
    best, worst = max(scores, key=scores.__getitem__), min(scores, key=scores.__getitem__)
    where = {name: _WHERE.get(name, f"in “{tame(name)}”") for name in scores}
    text = (
        f"{_on(evaluation)}, nDCG@10 of the plain model is {100 * scores[best]:.1f} for answers {where[best]} and "
        f"{100 * scores[worst]:.1f} for those {where[worst]} (PSI {plain.psi:.3f}; 0 is even)."
    )
    if scores[best] - scores[worst] < _EVEN:
        return [Finding("Answers are found equally well wherever they stand.", text, "good")]
    return [Finding("Where the answer stands decides how well it is found.", text, "bad")]


def _calibration(evaluation: Evaluation, audited: str | None) -> list[Finding]:
    """What calibration gains, and what it costs."""
    plain, choice = evaluation.plain, choose(evaluation, audited)
    compared = comparison_of([plain, choice.result]) if plain is not None and choice is not None else None
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
    tone: Tone = "neutral" if not sure else "good" if change > 0 else "bad"
    findings = [Finding(_LEADS[tone], text, tone)]
    if costs:
        text = (
            f"{_on(evaluation)}, with the same calibration: {listed(costs)} points of nDCG@10. Where most answers stand "
            "there, weigh this against the gains, or choose a smaller strength."
        )
        findings.append(Finding("It has a cost.", text, "bad"))
    return findings
