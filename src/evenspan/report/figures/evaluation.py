"""The figures of an evaluation: scores by position, and those of a sweep."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from evenspan.drawing import palette
from evenspan.drawing.figure import Figure, Panel
from evenspan.evaluation.scores import EvaluationResult
from evenspan.formatting import clipped, method_name, tame
from evenspan.report.figures.sweep import strengths, trade_off
from evenspan.report.load import Evaluation
from evenspan.report.selection import shown, sweep_of


def evaluation_figures(evaluation: Evaluation, key: str, wanted: str | None = None) -> list[Figure]:
    """Every figure that the results have the data for."""
    figures = [_by_position(shown(evaluation, wanted), key)] if evaluation.results[0].groups else []
    sweep = sweep_of(evaluation)
    if sweep is not None:
        curves = strengths(sweep, key)
        figures += [trade_off(sweep, key), *([curves] if curves else [])]
    return figures


def _by_position(results: Sequence[EvaluationResult], key: str) -> Figure:
    names = list(results[0].groups)
    positions = results[0].psi is not None

    def draw(axes: Any) -> None:
        for place, result in enumerate(results):
            shift = (place - (len(results) - 1) / 2) * min(0.16, 0.7 / len(results))
            for column, name in enumerate(names):
                group = result.groups.get(name)
                if group is not None and group.ndcg_interval is not None:
                    low, high = (100 * value for value in group.ndcg_interval)
                    axes.plot([column + shift] * 2, [low, high], color=palette.METHODS[place], linewidth=2, alpha=0.55)
            values = [100 * result.groups[name].ndcg if name in result.groups else float("nan") for name in names]
            axes.plot(
                [column + shift for column in range(len(names))],
                values,
                linestyle="none",
                marker=palette.MARKERS[place],
                markersize=6.5,
                color=palette.METHODS[place],
                label=clipped(method_name(result.method), 52),
            )
        long = len(names) > 6 or max(map(len, names)) > 10
        labels = [clipped(tame(name), 18) for name in names]
        axes.set_xticks(range(len(names)), labels, rotation=45 if long else 0, ha="right" if long else "center")
        axes.set(ylabel="nDCG@10", xlim=(-0.6, len(names) - 0.4))
        axes.grid(visible=False, axis="x")
        axes.legend(loc="lower left", bbox_to_anchor=(-0.08, 1.0), ncols=1, handletextpad=0.2)

    said = [
        f"{method_name(result.method)}: "
        + ", ".join(f"{tame(name)} {100 * group.ndcg:.1f}" for name, group in list(result.groups.items())[:12])
        for result in results
    ]
    rows = tuple(
        (result.method, name, group.count, group.ndcg, *(group.ndcg_interval or (None, None)))
        for result in results
        for name, group in result.groups.items()
    )
    return Figure(
        f"{key}-positions",
        "nDCG@10 by position of the answer" if positions else "nDCG@10 by data set",
        "; ".join(said) + ".",
        "Higher is better, and points at one height mean that "
        + ("where the answer stands does not matter." if positions else "the sets are equally hard.")
        + " Lines: 95 % bootstrap intervals over queries.",
        (Panel("", draw, 2.7 + 0.19 * len(results)),),
        ("method", "group", "queries", "ndcg@10", "low", "high"),
        rows,
    )
