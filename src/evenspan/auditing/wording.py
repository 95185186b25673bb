"""An audit in words."""

from __future__ import annotations

from evenspan.auditing.result import UNLIMITED, Audit, Estimate, Representation, Truncation


def describe(audit: Audit) -> str:
    """What was found, a line each; what is never read comes first."""
    lines = [f"{audit.model}", "", truncation_in_words(audit.truncation)]
    plain = audit.plain.representation
    calibrated = None if audit.calibrated is None else audit.calibrated.representation
    if plain is not None:
        lines += ["", verdict_in_words(plain)]
        if calibrated is not None:
            lines.append(change_in_words(audit))
        lines += ["", *_table(plain, calibrated)]
    lines += _attention(audit)
    if audit.notes:
        lines += ["", *(f"Note: {note}" for note in audit.notes)]
    return "\n".join(lines)


def truncation_in_words(found: Truncation) -> str:
    """What is never read."""
    if found.room >= UNLIMITED:
        return f"Nothing is cut off: the model reads documents of any length (the longest has {found.longest} tokens)."
    if not found.cut:
        return (
            f"Nothing is cut off: all {found.documents} documents fit into the {found.room} tokens that the model reads "
            f"(the longest has {found.longest})."
        )
    return (
        f"{found.cut / found.documents:.0%} of the documents ({found.cut} of {found.documents}) are cut off: the model reads "
        f"{found.room} tokens, so {found.unread / max(found.tokens, 1):.0%} of all tokens ({found.unread:,} of "
        f"{found.tokens:,}) are never read. No calibration brings them back: cut such documents into passages, or raise "
        "max_seq_length if the model allows it."
    )


def verdict_in_words(found: Representation) -> str:
    """The bias of the plain model."""
    first, last = found.positions[0].value, found.positions[-1].value
    figures = (
        f"from the first to the last of {len(found.positions)} positions a segment's cosine with its document goes from "
        f"{first:.3f} to {last:.3f} (slope {signed(found.slope)}, {abs(found.relative_slope.value):.2f} standard deviations "
        "of what content makes)"
    )
    if found.bias == "none found":
        return f"No position bias found: {figures}."
    meaning = {
        "primacy": "the beginning of a document shows more in its vector than the end",
        "recency": "the end of a document shows more in its vector than the beginning",
        "both ends": "both ends of a document show more in its vector than the middle",
        "middle": "the middle of a document shows more in its vector than both ends",
    }[found.bias]
    return f"{found.verdict.capitalize()} bias: {meaning}; {figures}."


def change_in_words(audit: Audit) -> str:
    """What calibration does to the slope."""
    plain = audit.plain.representation
    after = None if audit.calibrated is None else audit.calibrated.representation
    if plain is None or after is None or audit.slope_change is None:
        return ""
    low, high = audit.slope_change.interval
    told = f"from {plain.slope.value:+.3f} to {after.slope.value:+.3f} (change {signed(audit.slope_change)})"
    if low <= 0 <= high:
        return f"Calibration ({audit.calibration}) does not change the slope beyond noise: {told}."
    if abs(after.slope.value) < abs(plain.slope.value):
        share = 1 - abs(after.slope.value) / abs(plain.slope.value)
        return f"Calibration ({audit.calibration}) flattens the slope by {share:.0%}: {told}."
    return f"Calibration ({audit.calibration}) makes the slope steeper, so leave it off: {told}."


def signed(found: Estimate) -> str:
    """A figure and its interval."""
    return f"{found.value:+.3f}, 95 % {found.interval[0]:+.3f} to {found.interval[1]:+.3f}"


def _table(plain: Representation, calibrated: Representation | None) -> list[str]:
    sides = [("plain", plain)] + ([("calibrated", calibrated)] if calibrated is not None else [])
    head = f"{'position':<12}" + "".join(f"{place + 1:>8}" for place in range(len(plain.positions)))
    head += f"{'slope':>10}{'primacy':>10}{'recency':>10}  verdict"
    lines = [head]
    for name, side in sides:
        cells = "".join(f"{one.value:>8.3f}" for one in side.positions)
        figures = "".join(f"{one.value:>+10.3f}" for one in (side.slope, side.primacy, side.recency))
        lines.append(f"{name:<12}{cells}{figures}  {side.verdict}")
    return lines


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
