"""`evenspan inspect`: can this model be calibrated, and where."""

import typer

from evenspan.calibration import Calibration
from evenspan.cli.loading import load_model
from evenspan.cli.options import Model, OneCalibration
from evenspan.cli.output import Display


def inspect(*, model: Model, calibration: OneCalibration = Calibration(), display: Display) -> None:
    """Check whether a model can be calibrated.

    Shows which token is pooled, which layers would be calibrated, how many tokens the model reads and which attention it uses.
    If the model cannot be calibrated, says why and exits with 1.
    """
    from evenspan.models.inspecting import inspect_model

    inspection = inspect_model(load_model(model, "cpu"), calibration)
    display.show(inspection, inspection.to_json())
    if not inspection.calibratable:
        raise typer.Exit(1)
