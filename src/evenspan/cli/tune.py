"""`evenspan tune`: the setting to use, if any."""

from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

from evenspan.cli.loading import load_model
from evenspan.cli.options import Data, Encoding
from evenspan.cli.output import Display, how_to_use, made
from evenspan.cli.parsing import BadOptionError, choice, new_folder, option, share
from evenspan.cli.sweep import Settings

_OBJECTIVE = (
    "What to maximize: balanced (HM, unless overall nDCG@10 falls beyond noise or a position loses more than any other gains), "
    "hm (HM alone), ndcg (overall nDCG@10) or worst (the worst position)."
)
_SAVE = "Save the calibrated model here, if calibration is recommended."


def tune(
    *,
    data: Data,
    settings: Settings,
    objective: Annotated[str, choice(_OBJECTIVE, "balanced|hm|ndcg|worst")] = "balanced",
    development: Annotated[
        float, share("Share of the documents whose queries choose the setting; the rest confirm it.")
    ] = 0.5,
    save: Annotated[Path | None, option(_SAVE, "DIR", new_folder)] = None,
    encoding: Encoding,
    display: Display,
) -> None:
    """Find the best setting for a model, if any helps.

    Chooses a setting by HM, the harmonic mean of nDCG@10 over positions, or by another objective, on a part of the queries and
    confirms it on the rest. The answer is a calibration, or “leave it off” if none beats the plain model beyond noise without
    unacceptable losses. With --texts no labels are needed: sentences of your documents stand in for questions. --output saves
    the answer as tuning.json, which every --calibration option accepts. For chunks, and for documents of mixed lengths, use
    --grid even.
    """
    if encoding.resamples < 100:
        raise BadOptionError(f"--resamples must be at least 100 to tell a gain from noise, not {encoding.resamples}.")
    data.require("Tuning")
    from evenspan.evaluation.benchmarks.texts import TooShortError
    from evenspan.models.calibrating import calibrate
    from evenspan.sweeps import LeftOff, left_off
    from evenspan.sweeps import tune as run
    from evenspan.sweeps.sweep_result import remove_sweep

    try:
        arguments = settings.prepare(data, encoding, display)
    except TooShortError as error:
        model = load_model(data.model, encoding.device)
        tuning: LeftOff | Any = left_off(model, error, settings.read_grid(), encoding.document_prompt)
    else:
        model = arguments["model"]
        tuning = run(development=development, objective=objective, **arguments)
    markdown = str(tuning)
    if not isinstance(tuning, LeftOff):
        parts = {"Development queries": tuning.development, "Confirming queries": tuning.confirmation}
        tables = [f"{name}\n\n{comparison.to_markdown()}" for name, comparison in parts.items()]
        markdown = "\n\n".join([tuning.in_words(), *tables])
    display.show(tuning, tuning.to_dict(), markdown)
    if settings.output is not None:
        with made(settings.output):
            tuning.write(settings.output / "tuning.json")
            (settings.output / "tuning.txt").write_text(f"{tuning}\n", encoding="utf-8")
            if isinstance(tuning, LeftOff):
                remove_sweep(settings.output)
            else:
                drawn = find_spec("matplotlib") is not None
                tuning.sweep.write(settings.output, figures=drawn)
                if not drawn and tuning.sweep.plain.psi is not None:  # else there would be none anyway
                    display.say("No figures were drawn. To have them: pip install 'evenspan[report]'")
        display.say(how_to_use(settings.output / "tuning.json", tuning.calibration))
    if save is not None and tuning.calibration is not None:
        calibrate(model, tuning.calibration).save_pretrained(str(save))
        display.say(f"Saved to {save}. Load it with evenspan.load({str(save)!r}).")
    elif save is not None:
        display.say("Nothing was saved: the plain model is the one to use.")
