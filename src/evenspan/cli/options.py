"""Options that several commands share."""

from __future__ import annotations

import argparse
from typing import Any

from evenspan.calibration import Calibration


def calibration(text: str) -> Calibration:
    """Read a calibration from the command line, with its own words in the error."""
    try:
        return Calibration.parse(text)
    except (TypeError, ValueError) as error:
        raise argparse.ArgumentTypeError(str(error)) from None


CALIBRATION_HELP = (
    "a calibration such as 'soft' or 'hard,strength=1.0,layers=last,basket_size=64'; what is left out takes its "
    f"default (default: '{Calibration()}')"
)


def quiet_transformers() -> None:
    """Silence load reports and weight-loading bars, which would drown a command's own output."""
    from transformers.utils import logging

    silence: Any = logging
    silence.set_verbosity_error()
    silence.disable_progress_bar()
