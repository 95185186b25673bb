"""What was found, at a glance."""

from __future__ import annotations

from dataclasses import dataclass

from evenspan.auditing.findings import Tone
from evenspan.auditing.schema import Representation
from evenspan.formatting import audit_name, count, plain, points, share, signed, tame
from evenspan.report.load import Evaluation, Subject
from evenspan.report.selection import choose, plain_of


@dataclass(frozen=True)
class Tile:
    """One figure to be seen at a glance."""

    label: str
    value: str
    note: str
    tone: Tone = "neutral"


def tiles(subject: Subject) -> list[Tile]:
    """The figures that matter most."""
    found: list[Tile] = []
    for path, audit in subject.audits:
        which = f"{audit_name(path)}: " if len(subject.audits) > 1 else ""
        cut = audit.truncation
        note = f"{count(cut.cut)} of {count(cut.documents)} documents are cut"
        found.append(
            Tile(f"{which}text never read", share(cut.unread, cut.tokens), note, "bad" if cut.unread else "good")
        )
        before = audit.plain.representation
        if before is not None:
            note = f"slope {signed(before.slope.value)} without calibration"
            found.append(
                Tile(f"{which}position bias", before.verdict, note, "good" if before.degree is None else "bad")
            )
        after = audit.calibrated.representation if audit.calibrated else None
        if before is not None and after is not None:
            note = f"slope {signed(after.slope.value)} instead of {signed(before.slope.value)}"
            found.append(Tile(f"{which}after calibration", after.verdict, note, _progress(before, after)))
    wanted = next((audit.calibration for _, audit in subject.audits if audit.calibration), None)
    for evaluation in subject.evaluations:
        found += _evaluation_tiles(evaluation, wanted)
    return found


def _progress(before: Representation, after: Representation) -> Tone:
    """A verdict that stays the same is no success, even if the slope is smaller."""
    if abs(after.slope.value) >= abs(before.slope.value):
        return "bad"
    return "good" if after.verdict != before.verdict else "neutral"


def _evaluation_tiles(evaluation: Evaluation, wanted: str | None) -> list[Tile]:
    start, choice = plain_of(evaluation), choose(evaluation, wanted)
    if start is None or choice is None or start.harmonic_mean is None or choice.result.harmonic_mean is None:
        return []
    change = choice.result.harmonic_mean - start.harmonic_mean
    value = f"{100 * start.harmonic_mean:.1f} → {100 * choice.result.harmonic_mean:.1f}"
    found = [Tile("All positions (HM)", value, f"{points(change)} on {tame(evaluation.benchmark)}", _tone(change))]
    moves = {name: choice.result.groups[name].ndcg - one.ndcg for name, one in start.groups.items()}
    lowest = min(moves, key=lambda name: moves[name])
    if moves[lowest] < 0:
        value = f"{100 * start.groups[lowest].ndcg:.1f} → {100 * choice.result.groups[lowest].ndcg:.1f}"
        found.append(Tile(f"Cost: {tame(lowest)}", value, f"{points(moves[lowest])} nDCG@10", "bad"))
    if start.psi is not None and choice.result.psi is not None:
        value = f"{plain(start.psi, 2)} → {plain(choice.result.psi, 2)}"
        found.append(Tile("Unevenness (PSI)", value, "0: every position alike", _tone(start.psi - choice.result.psi)))
    return found


def _tone(change: float) -> Tone:
    return "good" if change > 0 else "bad" if change < 0 else "neutral"
