"""Advice in a sentence or two."""

from __future__ import annotations

from collections.abc import Sequence

from evenspan.advising.advice import AdviceRow
from evenspan.advising.choosing import AS_GOOD, NOISE, Limits
from evenspan.advising.layouts import Layout
from evenspan.formatting import count


def sentence_of(rows: Sequence[AdviceRow], layouts: Sequence[Layout], chosen: int, limits: Limits) -> str:
    """What the plain model misses, what calibration does about it, and what to build."""
    parts = [_plain(rows[0]), _calibration(rows, layouts), _choice(rows[chosen], rows[0], limits)]
    return " ".join(part for part in parts if part)


def nothing_told(shortage: str) -> str:
    """The advice where too few documents are there to choose by."""
    return f"{shortage} Until there are more, build whole documents and leave calibration off."


def _plain(row: AdviceRow) -> str:
    worst = min(row.positions, key=row.positions.__getitem__)
    best = max(row.positions, key=row.positions.__getitem__)
    if row.positions[worst] == row.positions[best]:
        return f"With whole documents and no calibration, nDCG@10 is {100 * row.positions[best]:.1f} at every position."
    figures = (
        f"{100 * row.positions[name]:.1f} {'in' if name == 'middle' else 'at'} the {name}" for name in (best, worst)
    )
    return f"With whole documents and no calibration, nDCG@10 is {' and '.join(figures)}."


def _calibration(rows: Sequence[AdviceRow], layouts: Sequence[Layout]) -> str:
    place = next((n for n, layout in enumerate(layouts) if layout.plain is not None and not layout.chunk_tokens), None)
    if place is None:
        return "Leave calibration off: it was not tried (see the notes)."
    row, change = rows[place], f"HM {100 * rows[0].harmonic_mean:.1f} → {100 * rows[place].harmonic_mean:.1f}"
    if row.remark is not None:
        reason = f"{'it is ' * (row.remark in (NOISE, AS_GOOD))}{row.remark}"
        return f"Leave calibration off for whole documents: {reason} ({change})."
    return f"Whole documents calibrated with {layouts[place].calibration}: {change}."


def _choice(row: AdviceRow, plain: AdviceRow, limits: Limits) -> str:
    why = (
        f"the best within {limits}"
        if limits
        else "the smallest index within one point of HM of the best that can be built"
    )
    if limits and not limits.allow(row):
        why = f"nothing fits into {limits}; this is the smallest"
    size = f"{row.vectors:.1f} vectors and {count(row.bytes)} bytes per document"
    gain = "" if row is plain else f", HM {100 * row.harmonic_mean:.1f} instead of {100 * plain.harmonic_mean:.1f}"
    return f"Build {row.name}: {why} ({size}{gain}, {row.cost:.1f} times the encoding time)."
