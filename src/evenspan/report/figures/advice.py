"""The figure of advice: what quality costs in bytes."""

from __future__ import annotations

from functools import partial
from typing import Any

from evenspan.advising.advice import Advice, AdviceRow
from evenspan.drawing import palette
from evenspan.drawing.figure import Figure, Panel
from evenspan.formatting import count

_KINDS = {"chunks-max": "chunks", "late-chunking": "late chunking", "hybrid": "hybrid with BM25"}
_COLUMNS = ("harmonic_mean", "psi", "vectors", "bytes", "cost", "unread")
_MARKERS = {"whole documents": "o", "chunks": "s", "late chunking": "^", "hybrid with BM25": "D"}


def advice_figures(advice: Advice, key: str) -> list[Figure]:
    """Quality over bytes, where there is anything to compare."""
    if not advice.rows:
        return []
    marked = [f"{row.name} ({'; '.join(row.marks)})" for row in advice.rows if row.marks]
    points = [f"{row.name}: HM {100 * row.harmonic_mean:.1f} with {count(row.bytes)} bytes" for row in advice.rows]
    figure = Figure(
        f"{key}-sizes",
        "What quality costs",
        " ".join(f"{'; '.join(part)}." for part in (points, marked) if part),
        "HM of nDCG@10 over positions, by bytes per document in the index, on a logarithmic scale. Up and left is better. "
        "Rings: rows with a mark in the table. Hybrid search is overestimated where sentences stand in for questions.",
        (Panel("", partial(_draw, rows=advice.rows), 3.8),),
        ("index", "method", *_COLUMNS, "marks"),
        tuple(
            (row.name, row.method, *(getattr(row, name) for name in _COLUMNS), "; ".join(row.marks))
            for row in advice.rows
        ),
    )
    return [figure]


def _kind(row: AdviceRow) -> str:
    return _KINDS.get(row.method.partition(",")[0], "whole documents")


def _draw(axes: Any, rows: tuple[AdviceRow, ...]) -> None:
    for row in rows:
        place, colour = (row.bytes, 100 * row.harmonic_mean), palette.CALIBRATED if row.calibrated else palette.PLAIN
        axes.scatter(*place, marker=_MARKERS[_kind(row)], color=colour, s=36, linewidths=0, zorder=2)
        if row.marks:
            axes.scatter(*place, marker="o", s=150, facecolors="none", edgecolors=palette.INK, linewidths=1.1, zorder=3)
        if row.method.startswith("chunks-max") and not row.calibrated:
            length = row.method.partition("window=")[2].partition(",")[0]
            style = {"xytext": (0, -14), "textcoords": "offset points", "ha": "center"}
            axes.annotate(f"{length} tokens", place, fontsize=8.5, **style)
    for kind in [kind for kind in _MARKERS if any(_kind(row) == kind for row in rows)]:
        axes.scatter([], [], marker=_MARKERS[kind], color=palette.MUTED, label=kind)
    for name, colour in (("plain", palette.PLAIN), ("calibrated", palette.CALIBRATED)):
        axes.plot([], [], color=colour, linewidth=5, label=name)
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter(lambda value, _: count(value))
    axes.set(xlabel="bytes per document in the index", ylabel="HM of nDCG@10")
    axes.margins(0.1)
    axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=3, columnspacing=1, handlelength=1.2)
