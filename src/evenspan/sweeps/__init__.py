"""Many settings at a fraction of the cost: encode them together, evaluate them, choose one or none."""

from evenspan.sweeps.figures import plot_strengths, plot_strengths_of_models, plot_trade_off
from evenspan.sweeps.grids import ablation_grid, even_grid, paper_grid, read_grid, strengths
from evenspan.sweeps.reproducing import reproduce
from evenspan.sweeps.sweep_result import SweepResult
from evenspan.sweeps.sweeping import sweep
from evenspan.sweeps.tuning import Tuning, tune
from evenspan.sweeps.vectors import SweptVectors, encode

__all__ = [
    "SweepResult", "SweptVectors", "Tuning", "ablation_grid", "encode", "even_grid", "paper_grid", "plot_strengths",
    "plot_strengths_of_models", "plot_trade_off", "read_grid", "reproduce", "strengths", "sweep", "tune",
]  # fmt: skip
