"""What was found, at a glance."""

from __future__ import annotations

from dataclasses import dataclass

from evenspan.auditing.audit_result import Audit
from evenspan.auditing.findings import Tone, calibration_effect
from evenspan.formatting import count, plain, points, share, signed, tame
from evenspan.report.load import Evaluation, Subject
from evenspan.report.selection import choose


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
    note = f"{count(cut.cut)} of {count(cut.documents)} documents are cut"
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
        shown.append(Tile("Unevenness (PSI)", value, "0: every position alike", _tone(start.psi - end.psi)))
    return shown


def _tone(change: float) -> Tone:
    return "good" if change > 0 else "bad" if change < 0 else "neutral"
