"""The figures of an audit: what the vector reflects, and where the pooling token attends."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from evenspan.auditing.schema import Attention, AuditFigures, Representation
from evenspan.drawing import palette
from evenspan.drawing.figure import Figure, Panel
from evenspan.formatting import interval, plain, signed

_SIDES = (("plain", palette.PLAIN, "o"), ("calibrated", palette.CALIBRATED, "s"))
_MANY_LAYERS = 12  # with more, boxes of both sides get a panel each
_FEW_CELLS = 80  # with more, numbers do not fit into them
_BOX = ("whislo", "q1", "med", "q3", "whishi")

Side = tuple[str, str, Attention]  # its name, its colour, what it shows


def audit_figures(audit: AuditFigures, key: str) -> list[Figure]:
    """Every figure that the audit has the data for."""
    views = [view for view in (audit.plain, audit.calibrated) if view]
    shapes = [view.representation for view in views if view.representation]
    looks = [view.attention for view in views if view.attention]
    sides = [(name, colour, look) for look, (name, colour, _) in zip(looks, _SIDES, strict=False)]
    # What is drawn first is called plain.
    figures = [_representation(shapes, key)] if audit.plain.representation else []
    if not audit.plain.attention:
        return figures
    boxes = [*sides, ("plain, intact text", palette.METHODS[2], audit.intact)] if audit.intact else sides
    return [*figures, _self_mass(boxes, key), _heat_map(sides, key)]


def _representation(shapes: Sequence[Representation], key: str) -> Figure:
    sentences, rows = [], []
    for shape, (name, _, _) in zip(shapes, _SIDES, strict=False):
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
        "Cosine of a segment of average content with the vector of its whole document, by position. A level line means that "
        f"every position counts equally. Bands: 95 % bootstrap intervals over {shapes[0].documents} documents.",
        (Panel("", partial(_draw_representation, shapes=shapes), 3.5),),
        ("view", "position", "cosine", "low", "high"),
        tuple(rows),
    )


def _draw_representation(axes: Any, shapes: Sequence[Representation]) -> None:
    for shape, (name, colour, marker) in zip(shapes, _SIDES, strict=False):
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


def _heat_map(sides: Sequence[Side], key: str) -> Figure:
    """The mean mass of each basket, layer by layer."""
    most = max(value for _, _, look in sides for layer in look.layers for value in layer.baskets)
    readers = sides[0][2].basket_documents
    sentences, rows, panels = [], [], []
    widest = max(len(look.basket_documents) for _, _, look in sides)
    every_row = sides[0][2].every_row
    reader, giver = ("tokens attend", "all tokens") if every_row else ("the pooling token attends", "the pooling token")
    for name, _, look in sides:
        last = look.layers[-1]
        values = ", ".join(f"{100 * value:.1f} %" for value in last.baskets[:12])
        sentences.append(
            f"{name.capitalize()}, last layer ({last.layer}): the baskets from first to last get {values}."
        )
        rows += [
            (name, layer.layer, "yes" if layer.calibrated else "no", place, place * look.basket_size, value, documents)
            for layer in look.layers
            for place, (value, documents) in enumerate(zip(layer.baskets, look.basket_documents, strict=True))
        ]
        draw = partial(_draw_heat_map, look=look, most=most, widest=widest)
        panels.append(Panel(name, draw, 2.2 + 0.18 * min(len(look.layers), 12)))
    return Figure(
        f"{key}-attention",
        f"Where {reader}",
        " ".join(sentences),
        f"Mean share of the attention that each basket gets from {giver}, over the documents that have it and all "
        f"heads. {readers[-1]} of {readers[0]} documents reach the last basket, which is often a short one. ● marks a "
        "calibrated layer.",
        tuple(panels),
        ("view", "layer", "calibrated", "basket", "from_token", "mass", "documents"),
        tuple(rows),
    )


def _draw_heat_map(axes: Any, look: Attention, most: float, widest: int) -> None:
    cells = [
        [100 * value for value in layer.baskets] + [float("nan")] * (widest - len(layer.baskets))
        for layer in look.layers
    ]
    axes.grid(visible=False)
    scale = {"cmap": "cividis", "vmin": 0, "vmax": 100 * most}
    image = axes.imshow(cells, aspect="auto", interpolation="none", origin="lower", **scale)
    numbered = [(row, column, value) for row, line in enumerate(cells) for column, value in enumerate(line)]
    for row, column, value in numbered if len(numbered) <= _FEW_CELLS else []:
        if value == value:
            tone = "#ffffff" if value < 55 * most else "#111111"
            axes.text(column, row, f"{value:.0f}", ha="center", va="center", fontsize=8, color=tone)
    columns = range(0, widest, max(1, -(-widest // 8)))
    axes.set_xticks(columns, [str(look.basket_size * place) for place in columns])
    layers = look.layers[:: _every(look)]
    marks = [f"{layer.layer}{' ●' if layer.calibrated else ''}" for layer in layers]
    axes.set_yticks(range(0, len(cells), _every(look)), marks)
    axes.set(xlabel=f"baskets of {look.basket_size} tokens, from token", ylabel="layer")
    axes.spines[:].set_visible(False)
    bar = axes.figure.colorbar(image, ax=axes, label="% of the attention", pad=0.02, aspect=28)
    bar.outline.set_visible(False)


def _every(look: Attention) -> int:
    """Every how many layers there is room for a label."""
    return max(1, -(-len(look.layers) // 12))


def _self_mass(sides: Sequence[Side], key: str) -> Figure:
    """Box plots of what the pooling token gives itself."""
    apart = len(sides) > 1 and len(sides[0][2].layers) > _MANY_LAYERS
    panels = [(side[0], [side]) for side in sides] if apart else [("", sides)]
    top = 100 * max(layer.self_mass[4] for _, _, look in sides for layer in look.layers)
    sentences, rows = [], []
    title, meaning = (
        "Self-attention of the pooling token",
        "Share of its attention that the pooling token gives itself",
    )
    if sides[0][2].every_row:
        title, meaning = (
            "Attention outside the baskets",
            "Mean share of attention that tokens give to tokens outside the baskets",
        )
    for name, _, look in sides:
        high, last = max(look.layers, key=lambda layer: layer.self_mass[2]), look.layers[-1]
        sentences.append(
            f"{name.capitalize()}: the median is highest in layer {high.layer} ({100 * high.self_mass[2]:.1f} %) and "
            f"{100 * last.self_mass[2]:.1f} % in the last one."
        )
        for layer in look.layers:
            calibrated = "yes" if layer.calibrated else "no"
            rows.append((name, layer.layer, calibrated, *layer.self_mass, layer.mean_self_mass, layer.first_mass))
    return Figure(
        f"{key}-self-mass",
        title,
        " ".join(sentences),
        f"{meaning}, over documents and heads: line at the median, box "
        "from the 25th to the 75th percentile, whiskers from the 5th to the 95th. Segments are in random order, except in "
        "intact text.",
        tuple(Panel(name, partial(_draw_self_mass, sides=drawn, top=top)) for name, drawn in panels),
        ("view", "layer", "calibrated", "p5", "p25", "p50", "p75", "p95", "mean", "first_token_mean"),
        tuple(rows),
    )


def _draw_self_mass(axes: Any, sides: Sequence[Side], top: float) -> None:
    width = 0.62 / len(sides)
    for place, (label, colour, look) in enumerate(sides):
        shift = (place - (len(sides) - 1) / 2) * (width + 0.06)
        line = {"color": colour, "linewidth": 1.2}
        axes.bxp(
            [dict(zip(_BOX, (100 * mass for mass in layer.self_mass), strict=True)) for layer in look.layers],
            positions=[row + shift for row in range(len(look.layers))],
            widths=width,
            showfliers=False,
            patch_artist=True,
            boxprops={"facecolor": colour, "alpha": 0.35, "edgecolor": colour},
            medianprops={**line, "linewidth": 2.2},
            whiskerprops=line,
            capprops=line,
            manage_ticks=False,
        )
        axes.plot([], [], color=colour, linewidth=6, label=label)
    _, _, look = sides[0]
    labels = [str(layer.layer) for layer in look.layers[:: _every(look)]]
    axes.set_xticks(range(0, len(look.layers), _every(look)), labels)
    axes.set(xlabel="layer", ylabel="% of the attention", ylim=(0, min(100, 1.08 * top + 1e-3)))
    axes.grid(visible=False, axis="x")
    if len(sides) > 1:
        axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2)
