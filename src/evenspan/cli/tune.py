"""`evenspan tune`: the setting to use, if any."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

from evenspan.cli.options import Data, Encoding
from evenspan.cli.output import Display, made
from evenspan.cli.parsing import BadOptionError, choice, new_folder, option, share
from evenspan.cli.sweep import Settings

_OBJECTIVE = (
    "What counts: balanced (HM, unless overall nDCG@10 falls beyond noise or a position loses more than any other gains), hm "
    "(HM alone), ndcg (overall nDCG@10) or worst (the worst position)."
)
_SAVE = "Save the calibrated model here, unless it is better left off."


def tune(
    *,
    data: Data,
    settings: Settings,
    objective: Annotated[str, choice(_OBJECTIVE, "balanced|hm|ndcg|worst")] = "balanced",
    development: Annotated[float, share("Share of the documents whose queries choose; the rest confirm.")] = 0.5,
    save: Annotated[Path | None, option(_SAVE, "DIR", new_folder)] = None,
    encoding: Encoding,
    display: Display,
) -> None:
    """Find the best setting for a model, if any helps.

    Chooses a setting by HM, the harmonic mean of nDCG@10 over positions, or another objective on a part of the queries, and
    confirms it on the others. The answer is a calibration, or “leave it off” when nothing beats the plain model beyond noise
    or what does costs too much. For chunks, and for documents of mixed
    lengths, use --grid even.
    """
    if encoding.resamples < 100:
        raise BadOptionError(f"--resamples must be at least 100 to tell a gain from noise, not {encoding.resamples}.")
    arguments = settings.prepare("Tuning", data, encoding, display)
    from evenspan.models.calibrating import calibrate
    from evenspan.sweeps import tune as run

    tuning = run(development=development, objective=objective, **arguments)
    values = {
        "calibration": None if tuning.calibration is None else str(tuning.calibration),
        "candidate": str(tuning.candidate),
        "objective": tuning.objective,
        "gain": asdict(tuning.gain),
        "losses": tuning.losses,
        "passed_over": tuning.passed_over,
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
    if save is not None and tuning.calibration is not None:
        calibrate(arguments["model"], tuning.calibration).save_pretrained(str(save))
        display.say(f"Saved to {save}; load it with evenspan.load({str(save)!r}).")
    elif save is not None:
        display.say("Nothing was saved: the plain model is the one to use.")
