"""Figures that show several models side by side."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from evenspan.auditing.schema import Attention
from evenspan.drawing import palette
from evenspan.drawing.figure import Figure, Panel
from evenspan.formatting import clipped, model_name, tame
from evenspan.report.load import Material
from evenspan.report.selection import MOST, sweep_of
from evenspan.sweeps.figures import strengths_of_models
from evenspan.sweeps.sweep_result import SweepResult

_VIEWS = {"shuffled": "segments in random order", "intact": "documents as they are"}


def model_figures(material: Material) -> list[Figure]:
    """Self-mass by layer and what strength does, where at least two models have the data for it."""
    subjects = {model_name(subject.model): subject for subject in material.subjects[:MOST]}
    looks: dict[str, dict[str, Attention]] = {"shuffled": {}, "intact": {}}
    sweeps: dict[str, SweepResult] = {}
    for name, subject in subjects.items():
        for _, audit in subject.audits[:1]:
            views = {"shuffled": audit.plain.attention, "intact": audit.intact}
            for view, look in views.items():
                looks[view] |= {name: look} if look is not None else {}
        of_subject = [sweep for evaluation in subject.evaluations if (sweep := sweep_of(evaluation)) is not None]
        sweeps |= {name: of_subject[0]} if of_subject else {}
    figures = [_self_mass(looks)] if len(looks["shuffled"]) > 1 else []
    return [*figures, strengths_of_models(sweeps, "models-strengths")] if len(sweeps) > 1 else figures


def _self_mass(looks: Mapping[str, Mapping[str, Attention]]) -> Figure:
    """What the pooling token keeps for itself by depth, a line for each model."""
    shown = {view: by_model for view, by_model in looks.items() if by_model}
    rows: list[tuple[str | float, ...]] = []
    sentences = []
    for view, by_model in shown.items():
        for model, look in by_model.items():
            high = max(look.layers, key=lambda layer: layer.self_mass[2])
            sentences.append(
                f"{tame(model)}, {_VIEWS[view]}: the median is highest in layer {high.layer} ({100 * high.self_mass[2]:.1f} %)."
            )
            rows += [(model, view, layer.layer, *layer.self_mass, layer.mean_self_mass) for layer in look.layers]
    top = 100 * max(
        layer.self_mass[3] for looked in shown.values() for look in looked.values() for layer in look.layers
    )
    colours = dict(zip(looks["shuffled"], palette.METHODS, strict=False))
    return Figure(
        "models-self-mass",
        "Self-attention of the pooling token, by model",
        " ".join(sentences),
        "Share of its attention that the pooling token of the plain model gives itself, over documents and heads, from the "
        "first layer (0) to the last (1): line at the median, band from the 25th to the 75th percentile.",
        tuple(
            Panel(_VIEWS[view], partial(_draw, by_model=by_model, colours=colours, top=top))
            for view, by_model in shown.items()
        ),
        ("model", "view", "layer", "p5", "p25", "p50", "p75", "p95", "mean"),
        tuple(rows),
    )


def _draw(axes: Any, by_model: Mapping[str, Attention], colours: Mapping[str, str], top: float) -> None:
    for (model, look), marker in zip(by_model.items(), palette.MARKERS, strict=False):
        depths = [place / max(1, len(look.layers) - 1) for place in range(len(look.layers))]
        low, middle, high = ([100 * layer.self_mass[column] for layer in look.layers] for column in (1, 2, 3))
        colour = colours.get(model, palette.MUTED)
        axes.fill_between(depths, low, high, color=colour, alpha=0.18, linewidth=0)
        axes.plot(depths, middle, color=colour, marker=marker, markersize=4.5, label=clipped(tame(model), 30))
    axes.set(xlabel="depth of the layer", ylabel="% of the attention", ylim=(0, min(100, 1.08 * top + 1e-3)))
    axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2)
