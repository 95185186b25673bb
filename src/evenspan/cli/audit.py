"""`evenspan audit`: what a model makes of each part of your documents, without labels."""

from typing import Annotated

import typer

from evenspan.calibration import Calibration
from evenspan.cli import options
from evenspan.cli.loading import load_model
from evenspan.cli.output import Display, made
from evenspan.cli.parsing import number

_INTACT = "Also measure attention in intact documents, not only with their segments in random order."
_VERSIONS = "Random segment orders per document. Higher values narrow the intervals on small samples."


def audit(
    *,
    model: options.Model,
    texts: options.Texts,
    source_format: options.SourceFormat = None,
    field: options.TextField = None,
    sample: Annotated[int, number("Number of documents to draw at random.")] = 1000,
    calibration: options.CalibrationOrNone = None,
    segments: Annotated[int, number("Number of segments per document.", 2)] = 5,
    versions: Annotated[int, number(_VERSIONS)] = 1,
    intact: Annotated[bool, typer.Option("--intact", help=_INTACT)] = False,
    document_prompt: options.DocumentPrompt = None,
    batch_size: options.BatchSize = 32,
    device: options.Device = None,
    seed: options.Seed = 42,
    output: options.OutputFolder = None,
    display: Display,
) -> None:
    """See which parts of your documents a model neglects. No labels needed.

    Measures, on a sample of documents: how much the model never reads, where its pooling token attends, and how much each
    position counts in the vector, plain and calibrated. --output writes audit.json, which `evenspan report` turns into a page.
    """
    from evenspan.corpus.texts import read_texts

    drawn = read_texts(texts, field, sample, seed, source_format)  # a wrong file is refused before torch is imported
    from evenspan.auditing.auditing import audit as run
    from evenspan.models.calibrating import calibration_of
    from evenspan.models.inspecting import inspect_model

    notes = [drawn.in_words()] if drawn.left_out else []
    for note in notes:
        display.say(f"evenspan: {note}")
    loaded = load_model(model, device)
    if len(drawn.texts) < drawn.available:
        notes.append(f"A sample of {len(drawn.texts)} of {drawn.available} documents.")
    if calibration is None and calibration_of(loaded) is None:
        inspection = inspect_model(loaded)
        calibration = Calibration() if inspection.calibratable else "none"
        notes += [] if inspection.calibratable else [f"No calibration was compared. {inspection.reason}"]
    result = run(
        loaded,
        drawn.texts,
        calibration,
        names=drawn.names,
        sample=None,
        segments=segments,
        versions=versions,
        intact=intact,
        document_prompt=document_prompt,
        batch_size=batch_size,
        seed=seed,
        progress=not display.quiet,
        notes=notes,
    )
    if output is not None:
        with made(output):
            result.write(output / "audit.json")
    display.show(result, result.to_json())
