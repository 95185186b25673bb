"""The figures of an audit: what the vector reflects, and where the pooling token looks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from evenspan.auditing.schema import Audit, Representation
from evenspan.drawing.figure import Figure, Panel
from evenspan.formatting import interval, plain, signed
from evenspan.report.figures.attention import SIDES, heat_map, self_mass


def audit_figures(audit: Audit, key: str) -> list[Figure]:
    """Every figure that the audit has the data for."""
    views = [audit.plain, *([audit.calibrated] if audit.calibrated else [])]
    shapes = [view.representation for view in views if view.representation and view.representation.positions]
    looks = [view.attention for view in views if view.attention and view.attention.layers]
    figures = []
    if shapes and audit.plain.representation:  # what is drawn first is called plain
        figures.append(_representation(shapes, key))
    if looks and audit.plain.attention:
        figures.append(self_mass(looks, key))
        if all(look.basket_documents for look in looks):  # none where every document is shorter than a basket
            figures.append(heat_map(looks, key))
    return figures


def _representation(shapes: Sequence[Representation], key: str) -> Figure:
    def draw(axes: Any) -> None:
        for shape, (name, colour, marker) in zip(shapes, SIDES, strict=False):
            places = range(1, len(shape.positions) + 1)
            low, high = zip(*(one.interval for one in shape.positions), strict=True)
            axes.fill_between(places, low, high, color=colour, alpha=0.18, linewidth=0)
            values = [one.value for one in shape.positions]
            axes.plot(places, values, color=colour, marker=marker, markersize=5, label=f"{name}: {shape.verdict}")
        count = len(shapes[0].positions)
        labels = ["1\nbeginning", *map(str, range(2, count)), f"{count}\nend"] if count > 1 else ["1"]
        axes.set_xticks(range(1, count + 1), labels)
        axes.set(ylabel="cosine with the whole document")
        axes.margins(y=0.12)
        axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=1)

    said = []
    for shape, (name, _, _) in zip(shapes, SIDES, strict=False):
        first, last = shape.positions[0].value, shape.positions[-1].value
        said.append(
            f"{name.capitalize()}: {plain(first)} at the first of {len(shape.positions)} positions, {plain(last)} at the "
            f"last; slope {signed(shape.slope.value)} (95 % interval {interval(shape.slope)}), {shape.verdict}."
        )
    rows = tuple(
        (name, place, one.value, *one.interval)
        for shape, (name, _, _) in zip(shapes, SIDES, strict=False)
        for place, one in enumerate(shape.positions, 1)
    )
    return Figure(
        f"{key}-representation",
        "How much each position is reflected",
        " ".join(said),
        "Cosine of a segment of average content with the vector of its whole document, by where the segment stands. A "
        f"level line treats every position alike. Bands: 95 % bootstrap intervals over {shapes[0].documents} documents.",
        (Panel("", draw, 3.5),),
        ("view", "position", "cosine", "low", "high"),
        rows,
    )
