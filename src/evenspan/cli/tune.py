"""`evenspan tune`: the setting to use, if any."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

from evenspan.cli.display import Display
from evenspan.cli.files import check_folder, made, write_run
from evenspan.cli.options import Data, Encoding, Model
from evenspan.cli.parsing import BadOptionError, path, share
from evenspan.cli.sweep import Settings, prepare

_FEWEST = 100  # resamples that tell a gain from noise

_Development = Annotated[float, share("--development", "Of the documents whose queries choose.")]
_Save = Annotated[Path | None, path("--save", "DIR", "Save the model here with the calibration, if there is one.")]


def tune(
    *,
    model: Model,
    data: Data,
    settings: Settings,
    development: _Development = 0.5,
    save: _Save = None,
    encoding: Encoding,
    display: Display,
) -> None:
    """Find the setting for a model, or that it is better left off.

    Chooses a setting by HM on a part of the queries and confirms it on the others. The answer is a calibration, or “leave it
    off” when nothing beats the plain model beyond noise.
    """
    if encoding.resamples < _FEWEST:
        raise BadOptionError(
            f"--resamples must be at least {_FEWEST} to tell a gain from noise, not {encoding.resamples}."
        )
    check_folder("--save", save)
    loaded, benchmark, arguments = prepare("Tuning", model, data, display, settings, encoding)
    from evenspan.models.calibrating import calibrate
    from evenspan.sweeps import tune as run

    tuning = run(loaded, benchmark, development=development, **arguments)
    values = {
        "calibration": None if tuning.calibration is None else str(tuning.calibration),
        "candidate": str(tuning.candidate),
        "gain": asdict(tuning.gain),
        "development": json.loads(tuning.development.to_json()),
        "confirmation": json.loads(tuning.confirmation.to_json()),
    }
    parts = {"Development queries": tuning.development, "Confirming queries": tuning.confirmation}
    tables = [f"{name}\n\n{comparison.to_markdown()}" for name, comparison in parts.items()]
    display.show(tuning, values, "\n\n".join([str(tuning).partition("\n")[0], *tables]))
    if settings.output is not None:
        with made(settings.output):
            tuning.sweep.write(settings.output)
            (settings.output / "tuning.txt").write_text(f"{tuning}\n", encoding="utf-8")
            write_run(settings.output)
    if save is None:
        return
    if tuning.calibration is None:
        display.say("Nothing was saved: the plain model is the one to use.")
    else:
        calibrate(loaded, tuning.calibration).save_pretrained(str(save))
        display.say(f"Saved to {save}; load it with evenspan.load({str(save)!r}).")
