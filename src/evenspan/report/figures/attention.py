"""The figures of attention: where the pooling token looks, and what it keeps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from evenspan.auditing.schema import Attention
from evenspan.drawing import palette
from evenspan.drawing.figure import Figure, Panel

SIDES = (("plain", palette.PLAIN, "o"), ("calibrated", palette.CALIBRATED, "s"))
_PERCENTILES = ("p5", "p25", "p50", "p75", "p95")
_MANY_LAYERS = 12  # with more, boxes of both sides get a panel each


def heat_map(looks: Sequence[Attention], key: str) -> Figure:
    """The mean mass of each basket, layer by layer."""
    most = max(value for look in looks for layer in look.layers for value in layer.baskets)
    size = looks[0].basket_size
    widest = max(len(look.basket_documents) for look in looks)

    def panel(look: Attention, name: str) -> Panel:
        def draw(axes: Any) -> None:
            cells = [
                [100 * value for value in layer.baskets] + [float("nan")] * (widest - len(layer.baskets))
                for layer in look.layers
            ]
            axes.grid(visible=False)
            image = axes.imshow(
                cells, aspect="auto", cmap="cividis", vmin=0, vmax=100 * most, interpolation="none", origin="lower"
            )
            if len(cells) * widest <= 80:
                for row, values in enumerate(cells):
                    for column, value in enumerate(values):
                        if value == value:
                            tone = "#ffffff" if value < 55 * most else "#111111"
                            axes.text(column, row, f"{value:.0f}", ha="center", va="center", fontsize=8, color=tone)
            step = max(1, -(-widest // 8))
            axes.set_xticks(range(0, widest, step), [str(size * place) for place in range(0, widest, step)])
            every = max(1, -(-len(cells) // 12))
            axes.set_yticks(
                range(0, len(cells), every),
                [f"{layer.layer}{' ●' if layer.calibrated else ''}" for layer in look.layers[::every]],
            )
            axes.set(xlabel=f"baskets of {size} tokens, from token", ylabel="layer")
            axes.spines[:].set_visible(False)
            bar = axes.figure.colorbar(image, ax=axes, label="% of the attention", pad=0.02, aspect=28)
            bar.outline.set_visible(False)

        return Panel(name, draw, 2.2 + 0.18 * min(len(look.layers), 12))

    said = []
    for look, (name, _, _) in zip(looks, SIDES, strict=False):
        layer = look.layers[-1]
        values = ", ".join(f"{100 * value:.1f} %" for value in layer.baskets[:12])
        said.append(f"{name.capitalize()}, last layer ({layer.layer}): the baskets from first to last get {values}.")
    rows = tuple(
        (
            name,
            layer.layer,
            "yes" if layer.calibrated else "no",
            place,
            place * size,
            value,
            look.basket_documents[place],
        )
        for look, (name, _, _) in zip(looks, SIDES, strict=False)
        for layer in look.layers
        for place, value in enumerate(layer.baskets)
    )
    return Figure(
        f"{key}-attention",
        "Where the pooling token looks",
        " ".join(said),
        "Mean share of its attention that the pooling token gives each basket, over the documents that have it and all "
        f"heads. The last basket is read by {looks[0].basket_documents[-1]} of {looks[0].basket_documents[0]} documents, "
        "and is often a short one. ● marks a calibrated layer.",
        tuple(panel(look, name) for look, (name, _, _) in zip(looks, SIDES, strict=False)),
        ("view", "layer", "calibrated", "basket", "from_token", "mass", "documents"),
        rows,
    )


def self_mass(looks: Sequence[Attention], key: str) -> Figure:
    """Box plots of what the pooling token gives itself."""
    sides = list(zip(looks, SIDES, strict=False))
    apart = len(looks) > 1 and len(looks[0].layers) > _MANY_LAYERS
    top = 100 * max(layer.self_mass[4] for look in looks for layer in look.layers)

    def panel(drawn: list[Any], name: str) -> Panel:
        def draw(axes: Any) -> None:
            width = 0.62 / len(drawn)
            for place, (look, (label, colour, _)) in enumerate(drawn):
                shift = (place - (len(drawn) - 1) / 2) * (width + 0.06)
                boxes = [
                    dict(zip(("whislo", "q1", "med", "q3", "whishi"), (100 * v for v in layer.self_mass), strict=True))
                    for layer in look.layers
                ]
                line = {"color": colour, "linewidth": 1.2}
                axes.bxp(
                    boxes,
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
            layers = drawn[0][0].layers
            every = max(1, -(-len(layers) // 12))
            axes.set_xticks(range(0, len(layers), every), [str(layer.layer) for layer in layers[::every]])
            axes.set(xlabel="layer", ylabel="% of the attention", ylim=(0, min(100, 1.08 * top + 1e-3)))
            axes.grid(visible=False, axis="x")
            if len(drawn) > 1:
                axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2)

        return Panel(name, draw)

    said = []
    for look, (name, _, _) in sides:
        high = max(look.layers, key=lambda layer: layer.self_mass[2])
        last = look.layers[-1]
        said.append(
            f"{name.capitalize()}: the median is highest in layer {high.layer} ({100 * high.self_mass[2]:.1f} %) and "
            f"{100 * last.self_mass[2]:.1f} % in the last one."
        )
    return Figure(
        f"{key}-self-mass",
        "What the pooling token keeps for itself",
        " ".join(said),
        "Share of its attention that the pooling token gives itself, over documents and heads: line at the median, box "
        "from the 25th to the 75th percentile, whiskers from the 5th to the 95th.",
        tuple(panel([one], one[1][0]) for one in sides) if apart else (panel(sides, ""),),
        ("view", "layer", "calibrated", *_PERCENTILES, "mean", "first_token_mean"),
        tuple(
            (
                name,
                layer.layer,
                "yes" if layer.calibrated else "no",
                *layer.self_mass,
                layer.mean_self_mass,
                layer.first_mass,
            )
            for look, (name, _, _) in sides
            for layer in look.layers
        ),
    )
