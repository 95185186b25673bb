"""The figures of an evaluation: scores by position, and those of a sweep."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from evenspan.drawing import palette
from evenspan.drawing.figure import Figure, Panel
from evenspan.evaluation.scores import EvaluationResult
from evenspan.formatting import clipped, method_name, tame
from evenspan.report.load import Evaluation
from evenspan.report.selection import shown, sweep_of
from evenspan.sweeps.figures import strength_curves, strengths_figure, trade_off_figure


def evaluation_figures(evaluation: Evaluation, key: str, audited: str | None = None) -> list[Figure]:
    """Every figure that the results have the data for."""
    figures = [_by_position(shown(evaluation, audited), key)] if evaluation.results[0].groups else []
    sweep = sweep_of(evaluation)
    if sweep is not None:
        figures.append(trade_off_figure(sweep, f"{key}-trade-off"))
        if any(len(settings) > 1 for settings in strength_curves(sweep).values()):  # one strength makes no curve
            figures.append(strengths_figure(sweep, f"{key}-strengths"))
    return figures


def _by_position(results: Sequence[EvaluationResult], key: str) -> Figure:
    positions = results[0].psi is not None
    sentences = [
        f"{method_name(result.method)}: "
        + ", ".join(f"{tame(name)} {100 * group.ndcg:.1f}" for name, group in list(result.groups.items())[:12])
        for result in results
    ]
    return Figure(
        f"{key}-positions",
        "nDCG@10 by position of the answer" if positions else "nDCG@10 by data set",
        "; ".join(sentences) + ".",
        "Higher is better, and points at one height mean that "
        + ("where the answer is does not matter." if positions else "the sets are equally hard.")
        + " Lines: 95 % bootstrap intervals over documents.",
        (Panel("", partial(_draw_by_position, results=results), 2.7 + 0.19 * len(results)),),
        ("method", "group", "queries", "ndcg@10", "low", "high"),
        tuple(
            (result.method, name, group.count, group.ndcg, *(group.ndcg_interval or (None, None)))
            for result in results
            for name, group in result.groups.items()
        ),
    )


def _draw_by_position(axes: Any, results: Sequence[EvaluationResult]) -> None:
    names = list(results[0].groups)
    for place, result in enumerate(results):
        shift = (place - (len(results) - 1) / 2) * min(0.16, 0.7 / len(results))
        colour = palette.METHODS[place]
        known = {column + shift: result.groups[name] for column, name in enumerate(names) if name in result.groups}
        for across, group in known.items():
            if group.ndcg_interval is not None:
                ends = [100 * score for score in group.ndcg_interval]
                axes.plot([across] * 2, ends, color=colour, linewidth=2, alpha=0.55)
        axes.plot(
            list(known),
            [100 * group.ndcg for group in known.values()],
            linestyle="none",
            marker=palette.MARKERS[place],
            markersize=6.5,
            color=colour,
            label=clipped(method_name(result.method), 52),
        )
    long = len(names) > 6 or max(map(len, names)) > 10
    labels = [clipped(tame(name), 18) for name in names]
    axes.set_xticks(range(len(names)), labels, rotation=45 if long else 0, ha="right" if long else "center")
    axes.set(ylabel="nDCG@10", xlim=(-0.6, len(names) - 0.4))
    axes.grid(visible=False, axis="x")
    axes.legend(loc="lower left", bbox_to_anchor=(-0.08, 1.0), ncols=1, handletextpad=0.2)
