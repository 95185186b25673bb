"""What was found, in plain words: what is never read first, because it is often the larger loss."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from evenspan.auditing.findings import Finding, Tone, bias_findings, truncation_finding
from evenspan.evaluation.comparing import Difference
from evenspan.formatting import audit_name, count, listed, method_name, points, tame
from evenspan.report.load import Evaluation, Subject
from evenspan.report.selection import choose, comparison_of, plain_of


def findings(subject: Subject) -> list[Finding]:
    """Everything worth saying about a model, what is never read first."""
    found = [named(subject, path, truncation_finding(audit.truncation)) for path, audit in subject.audits]
    for path, audit in subject.audits:
        found += [named(subject, path, one) for one in bias_findings(audit)]
    wanted = next((audit.calibration for _, audit in subject.audits if audit.calibration), None)
    for evaluation in subject.evaluations:
        found += _evaluation(evaluation, wanted)
    return list(dict.fromkeys(found))


def named(subject: Subject, path: Path, finding: Finding) -> Finding:
    """A finding that says which audit it is from, where there are several."""
    if len(subject.audits) == 1:
        return finding
    return replace(finding, lead=f"{audit_name(path)}: {finding.lead}")


def _differences(evaluation: Evaluation, wanted: str | None) -> tuple[str, str, dict[str, Difference]] | None:
    start, choice = plain_of(evaluation), choose(evaluation, wanted)
    compared = comparison_of([start, choice.result]) if start is not None and choice is not None else None
    if choice is None or compared is None:
        return None
    return choice.result.method, choice.why, compared.rows[1].differences


def _evaluation(evaluation: Evaluation, wanted: str | None) -> list[Finding]:
    first = evaluation.results[0]
    found: list[Finding] = []
    where = f"On {tame(evaluation.benchmark)}" + (
        f" ({count(len(first.per_query))} queries)" if first.per_query else ""
    )
    if first.method == "none" and first.psi is not None:
        best = max(first.groups, key=lambda name: first.groups[name].ndcg)
        worst = min(first.groups, key=lambda name: first.groups[name].ndcg)
        text = f"{where}, nDCG@10 of the plain model is {100 * first.groups[best].ndcg:.1f} for answers {_where(best)} "
        text += f"and {100 * first.groups[worst].ndcg:.1f} for those {_where(worst)} (PSI {first.psi:.3f}; 0 is even)."
        found.append(Finding("Where the answer stands decides how well it is found.", text, "bad"))
        if first.groups[best].ndcg - first.groups[worst].ndcg < 0.02:
            found[-1] = Finding("Answers are found equally well wherever they stand.", text, "good")
    about = _differences(evaluation, wanted)
    if about is None:
        return found
    method, why, all_of_them = about
    sure = {name: one for name, one in all_of_them.items() if one.significant}
    main = "HM" if "HM" in all_of_them else "nDCG@10"
    parts = {
        tame(name.removeprefix("nDCG@10 ")): one.value for name, one in sure.items() if name.startswith("nDCG@10 ")
    }
    gains = [f"{name} {points(value)}" for name, value in parts.items() if value > 0]
    costs = [f"{name} {points(value)}" for name, value in parts.items() if value < 0]
    text = f"{where}, {method_name(method)} ({why}) changes {main} by {points(all_of_them[main].value)} points"
    text += "." if main in sure else ", which is within noise."
    text += f" Gains: {listed(gains)}." if gains else " No position gains beyond noise."
    tone: Tone = "neutral" if main not in sure else "good" if sure[main].value > 0 else "bad"
    lead = {"good": "Calibration helps overall.", "bad": "Calibration does harm overall."}.get(
        tone, "Overall, calibration makes no difference beyond noise."
    )
    found.append(Finding(lead, text, tone))
    if costs:
        text = f"{where}, with the same calibration: {listed(costs)} points of nDCG@10. Where most answers stand there, weigh "
        found.append(Finding("It has a cost.", f"{text}this against the gains, or choose a smaller strength.", "bad"))
    return found


def _where(name: str) -> str:
    return {"beginning": "at the beginning", "middle": "in the middle", "end": "at the end"}.get(
        name, f"in “{tame(name)}”"
    )
