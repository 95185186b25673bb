"""The figures of a sweep, for a page: what strength does, and what evenness costs.

`evenspan.sweeps.figures` draws the same for a folder of files, wider than a phone can show.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from evenspan.calibration import Calibration
from evenspan.drawing import palette
from evenspan.drawing.figure import Figure, Panel
from evenspan.evaluation.scores import EvaluationResult
from evenspan.formatting import clipped, method_name, points, tame
from evenspan.sweeps.figures import pareto_front
from evenspan.sweeps.sweep_result import SweepResult, figure

_VARIANTS = {"soft": "o", "uniform": "s", "hard": "^"}
_LAYERS = {"half": palette.CALIBRATED, "last": palette.METHODS[2], "all": palette.METHODS[3]}
_LAYER_NAMES = {"half": "half of the layers", "last": "last layer", "all": "all layers"}


def _value(result: EvaluationResult, name: str) -> float:
    return figure(result) if name == "HM" else result.groups[name].ndcg


def strengths(sweep: SweepResult, key: str) -> Figure | None:
    """Change against strength for each position; None where no setting differs from another in strength alone."""

    def kind(one: Calibration) -> tuple[object, ...]:
        return one.variant, one.basket_size, one.self_mass, one.first_token

    most = Counter(kind for kind, _ in {(kind(one), one.strength) for one in sweep.results}).most_common()
    chosen = max(most, key=lambda one: (one[1], str(one[0])))[0]
    drawn = sorted((one for one in sweep.results if kind(one) == chosen), key=lambda one: one.strength)
    sets = sorted({str(one.layers) for one in drawn})
    curves = {name: [one for one in drawn if str(one.layers) == name] for name in sets}
    curves = {name: members for name, members in curves.items() if len(members) > 1}
    if not curves:
        return None
    names = [name for name in sweep.plain.groups if name in palette.POSITIONS] or list(sweep.plain.groups)[:5]
    names.append("HM")
    colours = dict(zip(names, palette.METHODS, strict=False)) | palette.POSITIONS | {"HM": palette.INK}
    changes = {
        (layers, name): [(0.0, 0.0)]
        + [(one.strength, _value(sweep.results[one], name) - _value(sweep.plain, name)) for one in members]
        for layers, members in curves.items()
        for name in names
    }
    ends = [100 * change for values in changes.values() for _, change in values]
    room = 0.08 * (max(ends) - min(ends)) or 1.0

    def panel(layers: str) -> Panel:
        def draw(axes: Any) -> None:
            axes.axhline(0, color=palette.MUTED, linewidth=1)
            for place, name in enumerate(names):
                across, up = zip(*changes[layers, name], strict=True)
                look: dict[str, Any] = {"color": colours[name], "marker": palette.MARKERS[place], "markersize": 4.5}
                look["linewidth"] = 2.6 if name == "HM" else 1.7
                axes.plot(across, [100 * value for value in up], label=clipped(tame(name), 12), **look)
            axes.set(xlabel="strength λ", ylabel="change of nDCG@10", ylim=(min(ends) - room, max(ends) + room))
            axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=4, columnspacing=1, handlelength=1.4)

        return Panel(f"layers: {layers}", draw)

    said = []
    for layers in curves:
        peak = max(changes[layers, "HM"], key=lambda one: one[1])
        full = changes[layers, "HM"][-1][0]
        moves = ", ".join(f"{tame(name)} {points(changes[layers, name][-1][1])}" for name in names)
        said.append(
            f"Layers {layers}: HM is highest at λ = {peak[0]:g} ({points(peak[1])}); at λ = {full:g} the changes are {moves}."
        )
    variant, size = drawn[0].variant, drawn[0].basket_size
    return Figure(
        f"{key}-strengths",
        "What strength does",
        " ".join(said),
        f"Change of nDCG@10 (×100) from the plain model as calibration gets stronger: {variant}, baskets of {size}. Above "
        "the line is a gain, below it a cost. HM, the harmonic mean of the positions, falls when any of them is left behind."
        + (" Approximate figures (detached)." if sweep.detached else ""),
        tuple(panel(layers) for layers in curves),
        ("layers", "strength", "figure", "change"),
        tuple(
            (layers, strength, name, change)
            for (layers, name), values in changes.items()
            for strength, change in values
        ),
    )


def trade_off(sweep: SweepResult, key: str) -> Figure:
    """PSI against HM of every setting."""
    start = (sweep.plain.psi or 0.0, 100 * figure(sweep.plain))
    places = {one: (result.psi or 0.0, 100 * figure(result)) for one, result in sweep.results.items()}
    front = pareto_front([start, *places.values()])
    best = max(places, key=lambda one: places[one][1])

    def draw(axes: Any) -> None:
        axes.plot(*zip(*front, strict=True), color=palette.MUTED, linewidth=1.1, linestyle="--", zorder=1)
        for one, place in places.items():
            colour = _LAYERS.get(str(one.layers), palette.METHODS[5])
            axes.scatter(*place, marker=_VARIANTS[one.variant], color=colour, s=34, zorder=2, linewidths=0)
        right = places[best][0] > sum(axes.get_xlim()) / 2
        axes.annotate(
            f"{best.variant} λ {best.strength:g}",
            places[best],
            xytext=(-7 if right else 7, 5),
            textcoords="offset points",
            ha="right" if right else "left",
            fontsize=8.5,
        )
        axes.scatter(*start, marker="*", s=170, color=palette.PLAIN, label="plain", zorder=3, linewidths=0)
        for variant, marker in _VARIANTS.items():
            if any(one.variant == variant for one in places):
                axes.scatter([], [], marker=marker, color=palette.MUTED, label=variant)
        for layers, colour in _LAYERS.items():
            if any(str(one.layers) == layers for one in places):
                axes.plot([], [], color=colour, linewidth=5, label=_LAYER_NAMES[layers])
        axes.set(xlabel="PSI  (0: every position alike)", ylabel="HM of nDCG@10")
        axes.margins(0.08)
        axes.legend(
            loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=3, columnspacing=1, handlelength=1.2, handletextpad=0.5
        )

    rows: list[tuple[Any, ...]] = [("none", None, 0.0, None, None, start[0], figure(sweep.plain), start in front)]
    rows += [
        (
            str(one),
            one.variant,
            one.strength,
            str(one.layers),
            one.basket_size,
            place[0],
            place[1] / 100,
            place in front,
        )
        for one, place in places.items()
    ]
    return Figure(
        f"{key}-trade-off",
        "What evenness costs",
        f"Plain: HM {start[1]:.1f} at PSI {start[0]:.3f}. Highest HM of {len(places)} settings: {places[best][1]:.1f} at "
        f"PSI {places[best][0]:.3f} ({method_name(str(best))}). Most even: PSI {front[0][0]:.3f} at HM {front[0][1]:.1f}.",
        "Each mark is one setting; up and left is better: higher HM, and less difference between positions. The dashed line "
        "joins the settings that no other beats in both."
        + (" Approximate figures (detached)." if sweep.detached else ""),
        (Panel("", draw, 3.8),),
        ("method", "variant", "strength", "layers", "basket_size", "psi", "harmonic_mean", "pareto"),
        tuple((*row[:-1], "yes" if row[-1] else "no") for row in rows),
    )
