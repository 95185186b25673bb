"""What was found, at a glance."""

from __future__ import annotations

from dataclasses import dataclass

from evenspan.auditing.audit_result import Audit
from evenspan.auditing.findings import Tone, calibration_effect
from evenspan.formatting import count, plain, points, share, signed, tame
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
    named = [(subject.audit_name(path), audit) for path, audit in subject.audits]
    shown = [tile for name, audit in named for tile in _audit_tiles(audit, f"{name}: " if name else "")]
    for evaluation in subject.evaluations:
        shown += _evaluation_tiles(evaluation, subject.audited_calibration)
    return shown


def _audit_tiles(audit: Audit, prefix: str) -> list[Tile]:
    cut = audit.truncation
    note = f"{count(cut.cut)} of {count(cut.documents)} documents are cut"
    tone: Tone = "bad" if cut.unread else "good"
    shown = [Tile(f"{prefix}text never read", share(cut.unread, cut.tokens), note, tone)]
    before = audit.plain.representation
    if before is None:
        return shown
    slope = signed(before.slope.value)
    tone = "good" if before.degree is None else "bad"
    shown.append(Tile(f"{prefix}position bias", before.verdict, f"slope {slope} without calibration", tone))
    after, effect = audit.calibrated.representation if audit.calibrated else None, calibration_effect(audit)
    if after is None or effect is None:
        return shown
    note = f"slope {signed(after.slope.value)} instead of {slope}"
    if effect == "unchanged":
        note = f"slope {slope}: nothing changes"
    elif effect == "within noise":
        note += ", within noise"
    tone = "neutral"
    if effect in ("more even", "turned around") and after.verdict != before.verdict:
        tone = "good"  # a verdict that stays the same is no success, even if the slope is smaller
    elif effect == "less even":
        tone = "bad"
    return [*shown, Tile(f"{prefix}after calibration", after.verdict, note, tone)]


def _evaluation_tiles(evaluation: Evaluation, audited: str | None) -> list[Tile]:
    start, choice = plain_of(evaluation), choose(evaluation, audited)
    if start is None or choice is None or start.harmonic_mean is None or choice.result.harmonic_mean is None:
        return []
    end = choice.result
    change = end.ranking_score - start.ranking_score
    value = f"{100 * start.ranking_score:.1f} → {100 * end.ranking_score:.1f}"
    shown = [Tile("All positions (HM)", value, f"{points(change)} on {tame(evaluation.benchmark)}", _tone(change))]
    moves = {name: end.groups[name].ndcg - group.ndcg for name, group in start.groups.items()}
    lowest = min(moves, key=lambda name: moves[name])
    if moves[lowest] < 0:
        value = f"{100 * start.groups[lowest].ndcg:.1f} → {100 * end.groups[lowest].ndcg:.1f}"
        shown.append(Tile(f"Cost: {tame(lowest)}", value, f"{points(moves[lowest])} nDCG@10", "bad"))
    if start.psi is not None and end.psi is not None:
        value = f"{plain(start.psi, 2)} → {plain(end.psi, 2)}"
        shown.append(Tile("Unevenness (PSI)", value, "0: every position alike", _tone(start.psi - end.psi)))
    return shown


def _tone(change: float) -> Tone:
    return "good" if change > 0 else "bad" if change < 0 else "neutral"
