"""An audit in words, for the terminal and for reports."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from evenspan.auditing.schema import Attention, AuditFigures, Representation, Truncation
from evenspan.formatting import calibration_named, count, counted, interval, method_name, share, signed
from evenspan.models.reading import UNLIMITED

Tone = Literal["good", "bad", "neutral"]
Effect = Literal["unchanged", "within noise", "less even", "turned around", "more even"]
_MEANING = {
    "primacy": "text at the beginning of a document counts for more than the same text near the end",
    "recency": "text at the end of a document counts for more than the same text near the beginning",
    "middle": "text in the middle of a document counts for more than the same text at either end",
    "both ends": "text at the beginning or the end of a document counts for more than the same text in between",
}
_UNSEEN = 0.0005  # a smaller difference disappears in three digits: it is what rounding leaves of no change


@dataclass(frozen=True)
class Finding:
    """One statement: what it comes to, the figures behind it, and whether that is good news."""

    lead: str
    text: str
    tone: Tone = "neutral"


def audit_findings(audit: AuditFigures) -> list[Finding]:
    """Everything an audit has to say: what is never read, how positions show in the vectors, what calibration changes."""
    findings = [_truncation(audit.truncation)]
    if audit.plain.representation is not None:
        findings.append(_bias(audit.plain.representation))
    if (change := _change(audit)) is not None:
        findings.append(change)
    return findings


def calibration_effect(audit: AuditFigures) -> Effect | None:
    """What calibration does to the slope; None where there is nothing to compare."""
    before, after = audit.representations
    if before is None or after is None or audit.calibration is None:
        return None
    pairs = zip([*before.positions, before.slope], [*after.positions, after.slope], strict=False)
    if all(abs(plain.value - calibrated.value) < _UNSEEN for plain, calibrated in pairs):
        return "unchanged"
    change = audit.slope_change
    if change is None or change.interval[0] <= 0 <= change.interval[1]:
        return "within noise"
    if abs(after.slope.value) >= abs(before.slope.value):
        return "less even"
    return "turned around" if before.slope.value * after.slope.value < 0 else "more even"


def _truncation(cut: Truncation) -> Finding:
    if not cut.cut:
        read = "documents of any length" if cut.room >= UNLIMITED else f"{count(cut.room)} tokens of text"
        text = f"The model reads {read}; the longest document has {count(cut.longest)}."
        return Finding("Nothing is cut off.", text, "good")
    return Finding(
        f"{share(cut.unread, cut.tokens).capitalize()} of the text is never read.",
        f"The model stops after {count(cut.room)} tokens of text. Past the cut: {count(cut.unread)} of {count(cut.tokens)} "
        f"tokens, in {count(cut.cut)} of {count(cut.documents)} documents ({share(cut.cut, cut.documents)}); the longest has "
        f"{count(cut.longest)}. Calibration does not help here: split long documents, or raise max_seq_length if the model "
        "allows it.",
        "bad",
    )


def _bias(shape: Representation) -> Finding:
    figures = (
        f"slope {signed(shape.slope.value)} in cosine from beginning to end, 95 % interval {interval(*shape.slope.interval)}; "
        f"{abs(shape.relative_slope.value):.1f} standard deviations of the effect of content"
    )
    where = counted(shape.documents, "document")
    if shape.degree is None:
        text = f"In the part that is read, over {where}: {figures}. A bias too small for this sample is not ruled out."
        return Finding("No position bias was found.", text, "good")
    towards = {"both ends": "bias towards both ends", "middle": "bias towards the middle"}
    lead = (
        f"{shape.degree.capitalize()} {towards.get(shape.bias, f'{shape.bias} bias')}: positions do not count equally."
    )
    text = f"In the part that is read, {_MEANING[shape.bias]} ({figures}, over {where})."
    return Finding(lead, text, "bad")


def _change(audit: AuditFigures) -> Finding | None:
    effect, (before, after) = calibration_effect(audit), audit.representations
    if effect is None or before is None or after is None:
        return None
    old, new, name = before.slope.value, after.slope.value, method_name(str(audit.calibration))
    if effect == "unchanged":
        text = f"With {name} the slope stays {signed(old)}."
        return Finding("Calibration changes nothing here.", f"{text}{_why_unchanged(audit)}")
    change, size = audit.slope_change, "change not known"
    if change is not None:
        size = f"change {signed(change.value)}, 95 % interval {interval(*change.interval)}"
    if effect == "within noise":
        text = f"The slope is {signed(old)} plain and {signed(new)} with {name} ({size})."
        return Finding("Calibration changes nothing beyond noise.", text)
    leads: dict[Effect, str] = {
        "less even": "Calibration makes the representation less even.",
        "turned around": "Calibration reverses the slope and makes it smaller.",
        "more even": f"Calibration reduces the slope by {share(abs(old) - abs(new), abs(old))}.",
    }
    text = f"With {name}, the slope goes from {signed(old)} to {signed(new)} ({size}); the verdict is now: {after.verdict}."
    return Finding(leads[effect], text, "bad" if effect == "less even" else "good")


def _why_unchanged(audit: AuditFigures) -> str:
    """The reason, where the figures show one."""
    calibration = calibration_named(str(audit.calibration))
    longest = min(audit.truncation.longest, audit.truncation.room)
    if calibration is not None and calibration.strength == 0:
        return " Strength 0 is the plain model."
    if calibration is not None and longest < calibration.fewest_tokens:
        least = "a basket of" if calibration.partition == "paper" else "one and a half baskets of"
        return (
            f" The model reads at most {count(longest)} tokens of each document, and documents shorter than {least} "
            f"{calibration.basket_size} are not calibrated."
        )
    return ""


def position_table(plain: Representation, calibrated: Representation | None) -> str:
    """A table for the terminal: how much each position is reflected."""
    head = f"{'position':<12}" + "".join(f"{place:>8}" for place in range(1, len(plain.positions) + 1))
    lines = [f"{head}{'slope':>10}{'primacy':>10}{'recency':>10}  verdict"]
    for name, side in (("plain", plain), ("calibrated", calibrated)):
        if side is not None:
            cells = "".join(f"{estimate.value:>z8.3f}" for estimate in side.positions)  # z: no negative zero
            figures = "".join(f"{figure.value:>+z10.3f}" for figure in (side.slope, side.primacy, side.recency))
            lines.append(f"{name:<12}{cells}{figures}  {side.verdict}")
    return "\n".join(lines)


def attention_sentence(attention: Attention) -> str:
    """Where the pooling token, or the mean of all tokens, looks in the last layer."""
    last = attention.layers[-1]
    lead = "In the last layer the pooling token gives itself {:.0%} of its attention"
    if attention.every_row:
        lead = "In the last layer tokens give {:.0%} of their attention on average to the tokens outside the baskets"
    further = f", the last of {len(last.baskets)} {last.baskets[-1]:.1%}" if len(last.baskets) > 1 else ""
    first = f"the first basket of {attention.basket_size} tokens {last.baskets[0]:.1%}"
    return f"{lead.format(last.mean_self_mass)}, {first}{further}."
