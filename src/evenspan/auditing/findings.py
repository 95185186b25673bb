"""An audit in words, for the terminal and for reports."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from evenspan.auditing.schema import Audit, Estimate, Representation, Truncation
from evenspan.formatting import count, interval, method_name, share, signed
from evenspan.models.reading import UNLIMITED

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


def describe(audit: Audit) -> str:
    """What was found, a paragraph each; what is never read comes first."""
    lines = [audit.model]
    for finding in (truncation_finding(audit.truncation), *bias_findings(audit)):
        lines += ["", f"{finding.lead} {finding.text}"]
    if audit.plain.representation is not None:
        calibrated = None if audit.calibrated is None else audit.calibrated.representation
        lines += ["", *_table(audit.plain.representation, calibrated)]
    lines += _attention(audit)
    if audit.notes:
        lines += ["", *(f"Note: {note}" for note in audit.notes)]
    return "\n".join(lines)


def truncation_finding(cut: Truncation) -> Finding:
    """What is never read."""
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


def bias_findings(audit: Audit) -> list[Finding]:
    """How positions show in the vectors, and what calibration does about it."""
    before = audit.plain.representation
    return [] if before is None else [_bias(before), *_change(audit, before)]


def _bias(found: Representation) -> Finding:
    figures = (
        f"slope {signed(found.slope.value)} in cosine from beginning to end, 95 % interval {interval(found.slope)}; "
        f"{abs(found.relative_slope.value):.1f} standard deviations of what content makes"
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
    if change is not None and change.interval == (0, 0):
        same = f"With {name}, every document has the vector that it has without: the strength is 0, or no document is long "
        return [Finding("Calibration changes nothing here.", f"{same}enough to fill a basket.")]
    verdict = f"{figures}; the verdict is now: {after.verdict}."
    if not sure:
        return [Finding("Calibration changes nothing beyond noise.", verdict)]
    if abs(new) >= abs(old):
        return [Finding("Calibration makes the representation less even.", verdict, "bad")]
    if old * new < 0:
        return [Finding("Calibration turns the slope around, and makes it smaller.", verdict, "good")]
    return [Finding(f"Calibration takes away {share(abs(old) - abs(new), abs(old))} of the slope.", verdict, "good")]


def _table(plain: Representation, calibrated: Representation | None) -> list[str]:
    sides = [("plain", plain)] + ([("calibrated", calibrated)] if calibrated is not None else [])
    head = f"{'position':<12}" + "".join(f"{place + 1:>8}" for place in range(len(plain.positions)))
    head += f"{'slope':>10}{'primacy':>10}{'recency':>10}  verdict"
    lines = [head]
    for name, side in sides:
        cells = "".join(f"{_rounded(one):>8.3f}" for one in side.positions)
        figures = "".join(f"{_rounded(one):>+10.3f}" for one in (side.slope, side.primacy, side.recency))
        lines.append(f"{name:<12}{cells}{figures}  {side.verdict}")
    return lines


def _rounded(one: Estimate) -> float:
    return round(one.value, 3) + 0.0  # not -0.000


def _attention(audit: Audit) -> list[str]:
    attention = audit.plain.attention
    if attention is None:
        return []
    last = attention.layers[-1]
    baskets = last.baskets
    line = (
        f"In its last layer the pooling token gives itself {last.mean_self_mass:.0%} of its attention, the first basket of "
        f"{attention.basket_size} tokens {baskets[0]:.1%}"
    )
    if len(baskets) > 1:
        line += f", the last of {len(baskets)} {baskets[-1]:.1%}"
    return ["", line + "."]
