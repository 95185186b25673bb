"""The figures of a sweep, for its folder and for reports: what strength does, and what evenness costs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from evenspan.calibration import Calibration
from evenspan.drawing import palette
from evenspan.drawing.figure import Figure, Panel, save_image
from evenspan.errors import require_extra
from evenspan.evaluation.scores import EvaluationResult
from evenspan.formatting import LAYER_NAMES, clipped, method_name, points, tame

_MARKERS = {"soft": "o", "uniform": "s", "hard": "^"}
_COLOURS = {"half": palette.CALIBRATED, "last": palette.METHODS[2], "all": palette.METHODS[3]}
_APPROXIMATE = {True: " Approximate figures (detached).", False: ""}
_LEGEND = {"loc": "lower center", "bbox_to_anchor": (0.5, 1.0), "columnspacing": 1}

Point = tuple[float, float]  # strength and change of a score, or PSI and HM
PARTS = ("variant", "strength", "layers", "basket_size")  # columns of tables


class Sweep(Protocol):
    """What is drawn of a `SweepResult`."""

    @property
    def plain(self) -> EvaluationResult: ...  # noqa: D102
    @property
    def results(self) -> Mapping[Calibration, EvaluationResult]: ...  # noqa: D102
    @property
    def detached(self) -> bool: ...  # noqa: D102


def plot_strengths(sweep: Sweep, path: str | Path) -> None:
    """The change of nDCG@10 against λ for each position and HM, one panel for each set of layers.

    Of several variants and basket sizes the one with the most strengths is drawn.
    """
    _plot(strengths_figure, sweep, path)


def plot_strengths_of_models(sweeps: Mapping[str, Sweep], path: str | Path) -> None:
    """What `plot_strengths` draws, one panel for each of several models by name."""
    require_extra("report", "A figure", "matplotlib")
    if not sweeps or not all(sweep.results for sweep in sweeps.values()):
        raise ValueError("There is nothing to draw: no setting was evaluated.")
    save_image(strengths_of_models(sweeps, Path(path).stem), path)


def plot_trade_off(sweep: Sweep, path: str | Path) -> None:
    """PSI against HM for every setting, with the Pareto front."""
    _plot(trade_off_figure, sweep, path)


def parts_of(setting: Calibration | None) -> tuple[str | float | None, ...]:
    """What `PARTS` names, of a setting or, for None, of the plain model."""
    if setting is None:
        return None, 0.0, None, None
    return setting.variant, setting.strength, str(setting.layers), setting.basket_size


def _plot(figure: Any, sweep: Sweep, path: str | Path) -> None:
    require_extra("report", "A figure", "matplotlib")
    if not sweep.results:
        raise ValueError("There is nothing to draw: no setting was evaluated.")
    save_image(figure(sweep, Path(path).stem), path)


def strength_curves(sweep: Sweep) -> dict[str, list[Calibration]]:
    """For each set of layers the settings that differ in strength alone, by rising strength.

    Of several variants and basket sizes it is the one with the most strengths, and of the sets of layers those with more
    than one strength, if there are any.
    """

    def kind(setting: Calibration) -> tuple[object, ...]:
        return setting.variant, setting.basket_size, setting.self_mass, setting.first_token, setting.partition

    strengths = Counter(of_kind for of_kind, _ in {(kind(setting), setting.strength) for setting in sweep.results})
    most = max(strengths, key=lambda of_kind: (strengths[of_kind], str(of_kind)))
    curves: dict[str, list[Calibration]] = {}
    for setting in sorted(sweep.results, key=lambda setting: (str(setting.layers), setting.strength)):
        if kind(setting) == most:
            curves.setdefault(str(setting.layers), []).append(setting)
    return {layers: settings for layers, settings in curves.items() if len(settings) > 1} or curves


def strengths_figure(sweep: Sweep, key: str) -> Figure:
    """The change of nDCG@10 against strength for each position."""
    curves = strength_curves(sweep)
    names = [name for name in sweep.plain.groups if name in palette.POSITIONS] or list(sweep.plain.groups)[:5]
    changes = {
        layers: {name: _changes(sweep, settings, name) for name in [*names, "HM"]}
        for layers, settings in curves.items()
    }
    rows = tuple(
        (layers, strength, name, change)
        for layers, by_name in changes.items()
        for name, curve in by_name.items()
        for strength, change in curve
    )
    ends = [100 * row[3] for row in rows]
    room = 0.08 * (max(ends) - min(ends)) or 1.0
    limits = (min(ends) - room, max(ends) + room)
    setting = next(iter(curves.values()))[0]
    even = "even " if setting.partition == "even" else ""
    kind = f"{setting.variant}, {even}baskets of {setting.basket_size}"
    kind += f", self-mass {setting.self_mass:g}" if setting.variant == "hard" else ""
    return Figure(
        key,
        "What strength does",
        " ".join(_strengths_in_words(layers, by_name) for layers, by_name in changes.items()),
        f"Change of nDCG@10 (×100) from the plain model as calibration gets stronger: {kind}. Above the line is "
        "a gain, below it a cost. HM, the harmonic mean of the positions, falls when any of them is left behind."
        + _APPROXIMATE[sweep.detached],
        tuple(
            Panel(f"layers: {layers}", partial(_draw_strengths, changes=by_name, limits=limits))
            for layers, by_name in changes.items()
        ),
        ("layers", "strength", "figure", "change"),
        rows,
        subtitle=kind,
    )


def _changes(sweep: Sweep, settings: Sequence[Calibration], name: str) -> list[Point]:
    def score(result: EvaluationResult) -> float:
        return result.ranking_score if name == "HM" else result.groups[name].ndcg

    start = score(sweep.plain)
    return [(0.0, 0.0), *((setting.strength, score(sweep.results[setting]) - start) for setting in settings)]


def _strengths_in_words(layers: str, changes: Mapping[str, Sequence[Point]]) -> str:
    best, gain = max(changes["HM"], key=lambda point: point[1])
    moves = ", ".join(f"{tame(name)} {points(curve[-1][1])}" for name, curve in changes.items())
    return (
        f"Layers {layers}: HM is highest at λ = {best:g} ({points(gain)}); at λ = {changes['HM'][-1][0]:g} the changes are "
        f"{moves}."
    )


def _draw_strengths(axes: Any, changes: Mapping[str, Sequence[Point]], limits: tuple[float, float]) -> None:
    colours = dict(zip(changes, palette.METHODS, strict=False)) | palette.POSITIONS | {"HM": palette.INK}
    axes.axhline(0, color=palette.MUTED, linewidth=1)
    for (name, curve), marker in zip(changes.items(), palette.MARKERS, strict=False):
        strengths, values = zip(*((strength, 100 * change) for strength, change in curve), strict=True)
        style = {"color": colours[name], "marker": marker, "linewidth": 2.6 if name == "HM" else 1.7}
        axes.plot(strengths, values, label=clipped(tame(name), 12), markersize=4.5, **style)
    axes.set(xlabel="strength λ", ylabel="change of nDCG@10", ylim=limits)
    axes.legend(ncols=4, handlelength=1.4, **_LEGEND)


def strengths_of_models(sweeps: Mapping[str, Sweep], key: str) -> Figure:
    """The change of nDCG@10 against strength for each position, one panel for each model: the paper's ablation."""
    panels: dict[str, dict[str, list[Point]]] = {}
    sentences, rows = [], []
    for model, sweep in sweeps.items():
        curves = strength_curves(sweep)
        layers = max(curves, key=lambda name: (len(curves[name]), name == "half"))
        names = [name for name in sweep.plain.groups if name in palette.POSITIONS] or list(sweep.plain.groups)[:5]
        panels[model] = {name: _changes(sweep, curves[layers], name) for name in [*names, "HM"]}
        sentences.append(f"{tame(model)}: {_strengths_in_words(layers, panels[model])}")
        rows += [(model, layers, strength, name, by) for name, curve in panels[model].items() for strength, by in curve]
    ends = [100 * row[4] for row in rows]
    room = 0.08 * (max(ends) - min(ends)) or 1.0
    limits = (min(ends) - room, max(ends) + room)
    return Figure(
        key,
        "Effect of strength on each model",
        " ".join(sentences),
        "Change of nDCG@10 (×100) from the plain model as calibration gets stronger, one panel for each model. Above the line "
        "is a gain, below it a cost.",
        tuple(
            Panel(clipped(tame(model), 40), partial(_draw_strengths, changes=changes, limits=limits))
            for model, changes in panels.items()
        ),
        ("model", "layers", "strength", "figure", "change"),
        tuple(rows),
    )


def trade_off_figure(sweep: Sweep, key: str) -> Figure:
    """PSI against HM of every setting."""
    start = _place(sweep.plain)
    places = {setting: _place(result) for setting, result in sweep.results.items()}
    front = pareto_front([start, *places.values()])
    best = max(places, key=lambda setting: places[setting][1])
    rows = [
        (str(setting or "none"), *parts_of(setting), place[0], place[1] / 100, "yes" if place in front else "no")
        for setting, place in [(None, start), *places.items()]
    ]
    return Figure(
        key,
        "What evenness costs",
        f"Plain: HM {start[1]:.1f} at PSI {start[0]:.3f}. Highest HM of {len(places)} settings: {places[best][1]:.1f} at "
        f"PSI {places[best][0]:.3f} ({method_name(str(best))}). Most even: PSI {front[0][0]:.3f} at HM {front[0][1]:.1f}.",
        "Each mark is one setting; up and left is better: higher HM, and less difference between positions. The dashed line "
        "joins the settings that no other beats in both." + _APPROXIMATE[sweep.detached],
        (Panel("", partial(_draw_trade_off, start=start, places=places, front=front), 3.8),),
        ("method", *PARTS, "psi", "harmonic_mean", "pareto"),
        tuple(rows),
    )


def _place(result: EvaluationResult) -> Point:
    return result.psi or 0.0, 100 * result.ranking_score


def _draw_trade_off(axes: Any, start: Point, places: Mapping[Calibration, Point], front: Sequence[Point]) -> None:
    axes.plot(*zip(*front, strict=True), color=palette.MUTED, linewidth=1.1, linestyle="--", zorder=1)
    for setting, place in places.items():
        colour = _COLOURS.get(str(setting.layers), palette.METHODS[5])
        axes.scatter(*place, marker=_MARKERS[setting.variant], color=colour, s=34, zorder=2, linewidths=0)
    middle = sum(axes.get_xlim()) / 2
    at = {place: setting for setting, place in places.items()}
    for place in dict.fromkeys([front[0], max(places.values(), key=lambda point: point[1])]):  # most even, highest HM
        if place in at:
            side = "right" if place[0] > middle else "left"
            style = {"xytext": (-7 if side == "right" else 7, 5), "textcoords": "offset points", "ha": side}
            axes.annotate(f"{at[place].variant} λ {at[place].strength:g}", place, fontsize=8.5, **style)
    axes.scatter(*start, marker="*", s=170, color=palette.PLAIN, label="plain", zorder=3, linewidths=0)
    for variant in [name for name in _MARKERS if any(setting.variant == name for setting in places)]:
        axes.scatter([], [], marker=_MARKERS[variant], color=palette.MUTED, label=variant)
    for layers in [name for name in _COLOURS if any(str(setting.layers) == name for setting in places)]:
        axes.plot([], [], color=_COLOURS[layers], linewidth=5, label=LAYER_NAMES[layers])
    axes.set(xlabel="PSI  (0: every position equal)", ylabel="HM of nDCG@10")
    axes.margins(0.08)
    axes.legend(ncols=3, handlelength=1.2, handletextpad=0.5, **_LEGEND)


def pareto_front(candidates: list[Point]) -> list[Point]:
    """The points that no other beats in both: lower PSI and higher HM; by rising PSI."""
    front: list[Point] = []
    for psi, mean in sorted(set(candidates), key=lambda point: (point[0], -point[1])):
        if not front or mean > front[-1][1]:
            front.append((psi, mean))
    return front
