"""Many settings at a fraction of the cost: encode them together, evaluate them, choose one or none."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from evenspan.sweeps.figures import plot_strengths, plot_trade_off
    from evenspan.sweeps.grids import ablation_grid, paper_grid, read_grid, strengths
    from evenspan.sweeps.sweep_result import SweepResult
    from evenspan.sweeps.sweeping import sweep
    from evenspan.sweeps.tuning import Tuning, tune
    from evenspan.sweeps.vectors import SweptVectors, encode

__all__ = [
    "SweepResult", "SweptVectors", "Tuning", "ablation_grid", "encode", "paper_grid", "plot_strengths", "plot_trade_off",
    "read_grid", "strengths", "sweep", "tune",
]  # fmt: skip

# Encoding needs nothing but the core; the rest needs `evenspan[eval]`, and is imported when it is used.
_HOME = {
    "SweptVectors": "vectors",
    "encode": "vectors",
    "plot_strengths": "figures",
    "plot_trade_off": "figures",
    "ablation_grid": "grids",
    "paper_grid": "grids",
    "read_grid": "grids",
    "strengths": "grids",
    "SweepResult": "sweep_result",
    "sweep": "sweeping",
    "Tuning": "tuning",
    "tune": "tuning",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)
