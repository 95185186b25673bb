"""`evenspan inspect`: can this model be calibrated, and where."""

from __future__ import annotations

import argparse
from typing import Any

from evenspan.calibration import Calibration
from evenspan.cli.options import CALIBRATION_HELP, calibration, quiet_transformers


def add_parser(commands: Any) -> None:
    """Declare the command."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "inspect",
        help="can a model be calibrated or why not, and how",
        description="Say whether a model can be calibrated or why not, which token is pooled, which layers would be "
        "calibrated, how many tokens the model reads and which attention runs. Exits with 1 if it cannot.",
    )
    parser.add_argument(
        "model",
        metavar="MODEL",
        help="a model folder, a name on the Hugging Face hub, or miniature:cls or miniature:last",
    )
    parser.add_argument("--calibration", type=calibration, default=Calibration(), help=CALIBRATION_HELP)
    parser.add_argument("--json", action="store_true", help="print a JSON object instead of text")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Load the model on the CPU and print what is found."""
    from evenspan.models.inspecting import inspect_model
    from evenspan.models.loading import load

    quiet_transformers()
    found = inspect_model(load(options.model, device="cpu"), options.calibration)
    print(found.to_json() if options.json else found)
    return 0 if found.calibratable else 1
