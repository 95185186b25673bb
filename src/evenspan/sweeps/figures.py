"""The figures of a sweep: what strength does, and what evenness costs."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evenspan.calibration import Calibration
from evenspan.evaluation.scores import EvaluationResult

if TYPE_CHECKING:
    from evenspan.sweeps.sweep_result import SweepResult

_COLOURS = {"beginning": "#c2410c", "middle": "#a16207", "end": "#1b4f8a", "HM": "#111827"}
_MARKERS = {"soft": "o", "uniform": "s", "hard": "^"}
_TINTS = {"last": "#9aa5b1", "half": "#1b4f8a", "all": "#c2410c"}


def plot_strengths(sweep: SweepResult, path: str | Path) -> None:
    """The change of nDCG@10 against λ for each position and HM, one panel for each set of layers.

    Of several variants and basket sizes the one with the most strengths is drawn.
    """
    if not sweep.results:
        raise ValueError("There is nothing to draw: no setting was evaluated.")
    strengths = {(_kind(one), one.strength) for one in sweep.results}
    kind = Counter(kind for kind, _ in strengths).most_common(1)[0][0]
    drawn = [one for one in sweep.results if _kind(one) == kind]
    sets = list(dict.fromkeys(str(one.layers) for one in drawn))
    figure, panels = _axes(len(sets), (4.2 * len(sets), 3.6))
    names = [name for name in sweep.plain.groups if name in _COLOURS] or list(sweep.plain.groups)
    for panel, layers in zip(panels, sets, strict=True):
        chosen = sorted((one for one in drawn if str(one.layers) == layers), key=lambda one: one.strength)
        for name in [*names, "HM"]:
            start = _value(sweep.plain, name)
            points = [(0.0, 0.0)] + [(one.strength, 100 * (_value(sweep.results[one], name) - start)) for one in chosen]
            width = 2.2 if name == "HM" else 1.4
            panel.plot(*zip(*points, strict=True), marker=".", label=name, color=_COLOURS.get(name), linewidth=width)
        panel.axhline(0, color="#9aa5b1", linewidth=0.8)
        panel.set(title=f"{_kind_name(drawn[0])}, layers: {layers}", xlabel="strength λ")
    panels[0].set_ylabel("change of nDCG@10")
    panels[0].legend(frameon=False)
    _save(figure, path)


def plot_trade_off(sweep: SweepResult, path: str | Path) -> None:
    """PSI against HM for every setting, with the Pareto front."""
    figure, (panel,) = _axes(1, (7.5, 5))
    points = {one: (result.psi or 0.0, 100 * _value(result, "HM")) for one, result in sweep.results.items()}
    front = pareto_front([(sweep.plain.psi or 0.0, 100 * _value(sweep.plain, "HM")), *points.values()])
    panel.plot(
        *zip(*front, strict=True), color="#111827", linewidth=0.8, linestyle="--", label="Pareto front", zorder=1
    )
    for one, (psi, mean) in points.items():
        panel.scatter(
            psi, mean, marker=_MARKERS[one.variant], color=_TINTS.get(str(one.layers), "#6b7280"), s=28, zorder=2
        )
        if (psi, mean) in front or len(points) <= 12:
            panel.annotate(_short(one), (psi, mean), fontsize=7, xytext=(4, 3), textcoords="offset points")
    panel.scatter(sweep.plain.psi, 100 * _value(sweep.plain, "HM"), marker="*", s=120, color="#111827", label="plain")
    for variant, marker in _MARKERS.items():
        if any(one.variant == variant for one in points):
            panel.scatter([], [], marker=marker, color="#6b7280", label=variant)
    for layers, tint in _TINTS.items():
        if any(str(one.layers) == layers for one in points):
            panel.scatter([], [], marker="o", color=tint, label=f"layers: {layers}")
    panel.set(xlabel="PSI (0: every position alike)", ylabel="HM of nDCG@10")
    panel.legend(frameon=False, fontsize=8)
    _save(figure, path)


def pareto_front(points: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """The points that no other beats in both: lower PSI and higher HM; by rising PSI."""
    front: list[tuple[float, float]] = []
    for psi, mean in sorted(set(points), key=lambda point: (point[0], -point[1])):
        if not front or mean > front[-1][1]:
            front.append((psi, mean))
    return front


def _value(result: EvaluationResult, name: str) -> float:
    if name == "HM":
        return result.ndcg if result.harmonic_mean is None else result.harmonic_mean
    return result.groups[name].ndcg


def _kind(one: Calibration) -> tuple[object, ...]:
    """What settings of one curve have in common."""
    return one.variant, one.basket_size, one.self_mass, one.first_token


def _kind_name(one: Calibration) -> str:
    more = f", self-mass {one.self_mass:g}" if one.variant == "hard" else ""
    return f"{one.variant}{more}, baskets of {one.basket_size}"


def _short(one: Calibration) -> str:
    more = f" w={one.self_mass:g}" if one.variant == "hard" else ""
    more += "" if one.first_token is None else f" first={one.first_token}"
    return f"{one.variant} λ={one.strength:g} {one.layers} B={one.basket_size}{more}"


def _axes(count: int, size: tuple[float, float]) -> tuple[Any, list[Any]]:
    try:
        from matplotlib.figure import Figure  # not pyplot, which would choose a back end for the whole process
    except ImportError:
        raise ImportError("Figures need matplotlib: pip install 'evenspan[report]'.") from None
    figure = Figure(figsize=size, layout="constrained")
    panels = figure.subplots(1, count, sharey=True, squeeze=False)
    for panel in panels[0]:
        panel.spines[["top", "right"]].set_visible(False)
    return figure, list(panels[0])


def _save(figure: Any, path: str | Path) -> None:
    figure.savefig(path, dpi=150, metadata={"Date": None} if str(path).endswith(".svg") else None)
