"""What was found, in plain words: what is never read first, because it is often the larger loss."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from evenspan.auditing.result import UNLIMITED, Audit, Representation, Truncation
from evenspan.evaluation.comparison import Difference
from evenspan.report.choosing import choose, comparison_of, plain_of
from evenspan.report.reading import Evaluation, Subject
from evenspan.report.words import audit_name, count, interval, listed, method_name, points, share, signed, tame

Tone = Literal["good", "bad", "neutral"]
_MEANING = {
    "primacy": "what stands at the beginning of a document is reflected more than the same text further back",
    "recency": "what stands at the end of a document is reflected more than the same text further up",
    "middle": "what stands in the middle of a document is reflected more than the same text at either end",
    "both ends": "what stands at the beginning or the end of a document is reflected more than the same text in between",
}


@dataclass(frozen=True)
class Finding:
    """One statement: what it comes to, the figures behind it, and whether that is good news."""

    lead: str
    text: str
    tone: Tone = "neutral"


def findings(subject: Subject) -> list[Finding]:
    """Everything worth saying about a model, what is never read first."""
    found = [named(subject, path, _truncation(audit.truncation)) for path, audit in subject.audits]
    for path, audit in subject.audits:
        before = audit.plain.representation
        if before is not None:
            found += [named(subject, path, one) for one in (_bias(before), *_change(audit, before))]
    wanted = next((audit.calibration for _, audit in subject.audits if audit.calibration), None)
    for evaluation in subject.evaluations:
        found += _evaluation(evaluation, wanted)
    return list(dict.fromkeys(found))


def named(subject: Subject, path: Path, finding: Finding) -> Finding:
    """A finding that says which audit it is from, where there are several."""
    if len(subject.audits) == 1:
        return finding
    return replace(finding, lead=f"{audit_name(path)}: {finding.lead}")


def _truncation(cut: Truncation) -> Finding:
    if not cut.cut:
        text = f"All {count(cut.documents)} documents fit into the {count(cut.room)} tokens that the model reads."
        if cut.room >= UNLIMITED:
            text = "The model reads documents of any length."
        return Finding("Nothing is cut off.", f"{text} The longest has {count(cut.longest)}.", "good")
    return Finding(
        f"{share(cut.unread, cut.tokens).capitalize()} of the text is never read.",
        f"The model stops after {count(cut.room)} tokens: {count(cut.cut)} of {count(cut.documents)} documents "
        f"({share(cut.cut, cut.documents)}) are longer, and {count(cut.unread)} of {count(cut.tokens)} tokens stand behind "
        f"the cut; the longest document has {count(cut.longest)}. No calibration brings that back: split long documents, or "
        "raise the model's maximum length where it allows it.",
        "bad",
    )


def _bias(found: Representation) -> Finding:
    figures = (
        f"slope {signed(found.slope.value)} in cosine from beginning to end, 95 % interval {interval(found.slope)}"
    )
    where = f"{count(found.documents)} documents"
    if found.degree is None:
        text = f"In the part that is read, over {where}: {figures}. A smaller bias than this can show is not ruled out."
        return Finding("No position bias was found.", text, "good")
    lead = (
        f"{found.verdict.capitalize()}: the model does not read evenly."
        if found.bias in ("both ends", "middle")
        else ""
    )
    lead = lead or f"{found.verdict.capitalize()} bias: the model does not read evenly."
    text = f"In the part that is read, {_MEANING[found.bias]} ({figures}, over {where})."
    return Finding(lead, text, "bad")


def _change(audit: Audit, before: Representation) -> list[Finding]:
    after = audit.calibrated.representation if audit.calibrated else None
    if after is None or audit.calibration is None:
        return []
    old, new = before.slope.value, after.slope.value
    name = method_name(audit.calibration)
    figures = f"With {name}, the slope goes from {signed(old)} to {signed(new)}"
    change = audit.slope_change
    sure = change is not None and not change.interval[0] <= 0 <= change.interval[1]
    if change is not None:
        figures += f" (change {signed(change.value)}, 95 % interval {interval(change)})"
    verdict = f"{figures}; the verdict is now: {after.verdict}."
    if not sure:
        return [Finding("Calibration changes nothing beyond noise.", verdict)]
    if abs(new) >= abs(old):
        return [Finding("Calibration makes the representation less even.", verdict, "bad")]
    if old * new < 0:
        return [Finding("Calibration turns the slope around, and makes it smaller.", verdict, "good")]
    return [Finding(f"Calibration takes away {share(abs(old) - abs(new), abs(old))} of the slope.", verdict, "good")]


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
