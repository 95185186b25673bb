"""Many settings at a fraction of the cost: encode them together, evaluate them, choose one or none."""

from evenspan.sweeps.figures import plot_strengths, plot_strengths_of_models, plot_trade_off
from evenspan.sweeps.grids import ablation_grid, even_grid, paper_grid, read_grid, strengths
from evenspan.sweeps.reproducing import reproduce
from evenspan.sweeps.sweep_result import SweepResult
from evenspan.sweeps.sweeping import sweep
from evenspan.sweeps.tuned import LeftOff, Tuning
from evenspan.sweeps.tuning import decide, left_off, tune
from evenspan.sweeps.vectors import SweptVectors, encode

__all__ = [
    "LeftOff", "SweepResult", "SweptVectors", "Tuning", "ablation_grid", "decide", "encode", "even_grid", "left_off",
    "paper_grid", "plot_strengths", "plot_strengths_of_models", "plot_trade_off", "read_grid", "reproduce", "strengths",
    "sweep", "tune",
]  # fmt: skip
