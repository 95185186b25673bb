"""The figures of an audit: what the vector reflects, and where the pooling token looks."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from evenspan.auditing.schema import AuditFigures, Representation
from evenspan.drawing.figure import Figure, Panel
from evenspan.formatting import interval, plain, signed
from evenspan.report.figures.attention import SIDES, attention_figures


def audit_figures(audit: AuditFigures, key: str) -> list[Figure]:
    """Every figure that the audit has the data for."""
    views = [view for view in (audit.plain, audit.calibrated) if view]
    shapes = [view.representation for view in views if view.representation]
    looks = [view.attention for view in views if view.attention]
    figures = (
        [_representation(shapes, key)] if audit.plain.representation else []
    )  # what is drawn first is called plain
    return figures + (attention_figures(looks, key) if audit.plain.attention else [])


def _representation(shapes: Sequence[Representation], key: str) -> Figure:
    sentences, rows = [], []
    for shape, (name, _, _) in zip(shapes, SIDES, strict=False):
        first, last = shape.positions[0].value, shape.positions[-1].value
        sentences.append(
            f"{name.capitalize()}: {plain(first)} at the first of {len(shape.positions)} positions, {plain(last)} at the "
            f"last; slope {signed(shape.slope.value)} (95 % interval {interval(*shape.slope.interval)}), {shape.verdict}."
        )
        rows += [(name, place, estimate.value, *estimate.interval) for place, estimate in enumerate(shape.positions, 1)]
    return Figure(
        f"{key}-representation",
        "How much each position is reflected",
        " ".join(sentences),
        "Cosine of a segment of average content with the vector of its whole document, by where the segment stands. A "
        f"level line treats every position alike. Bands: 95 % bootstrap intervals over {shapes[0].documents} documents.",
        (Panel("", partial(_draw_representation, shapes=shapes), 3.5),),
        ("view", "position", "cosine", "low", "high"),
        tuple(rows),
    )


def _draw_representation(axes: Any, shapes: Sequence[Representation]) -> None:
    for shape, (name, colour, marker) in zip(shapes, SIDES, strict=False):
        places = range(1, len(shape.positions) + 1)
        low, high = zip(*(estimate.interval for estimate in shape.positions), strict=True)
        axes.fill_between(places, low, high, color=colour, alpha=0.18, linewidth=0)
        values = [estimate.value for estimate in shape.positions]
        axes.plot(places, values, color=colour, marker=marker, markersize=5, label=f"{name}: {shape.verdict}")
    last = len(shapes[0].positions)
    axes.set_xticks(range(1, last + 1), ["1\nbeginning", *map(str, range(2, last)), f"{last}\nend"])
    axes.set(ylabel="cosine with the whole document")
    axes.margins(y=0.12)
    axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=1)
