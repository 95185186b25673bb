"""`evenspan inspect`: can this model be calibrated, and where."""

from __future__ import annotations

import typer

from evenspan.calibration import Calibration
from evenspan.cli import extras
from evenspan.cli.display import Display
from evenspan.cli.loading import load_model
from evenspan.cli.options import Model, OneCalibration


def inspect(*, model: Model, calibration: OneCalibration = Calibration(), display: Display) -> None:
    """Can a model be calibrated or why not, and how.

    Says which token is pooled, which layers would be calibrated, how many tokens the model reads and which attention runs.
    Exits with 1 if the model cannot be calibrated.
    """
    extras.for_model(model)
    from evenspan.models.inspecting import inspect_model

    inspection = inspect_model(load_model(model, "cpu"), calibration)
    display.show(inspection, inspection.to_json())
    if not inspection.calibratable:
        raise typer.Exit(1)
