"""`evenspan audit`: what a model makes of each part of your documents, without labels."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

from evenspan.calibration import Calibration
from evenspan.cli import extras
from evenspan.cli.display import Display
from evenspan.cli.files import check_folder, made, write_run
from evenspan.cli.loading import load_model
from evenspan.cli.options import (
    BatchSize,
    CalibrationOrNone,
    Device,
    DocumentPrompt,
    Model,
    OutputFolder,
    Seed,
    SourceFormat,
)
from evenspan.cli.parsing import location, number, text

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

_TEXTS = (
    "Documents: .jsonl, .csv, .tsv, .parquet, .txt or .md, also with .gz or .zst; a folder, a glob, '-' for standard input, or "
    "hf:OWNER/NAME[:CONFIG[:SPLIT]]."
)
_VERSIONS = "Random orders of its segments that a document is encoded in: more where documents are few."

_Texts = Annotated[str, location("--texts", "FILE|DIR", _TEXTS)]
_Field = Annotated[str | None, text("--field", "NAME", "The field of the text (default: text, or the only one).")]
_Sample = Annotated[int, number("--sample", "Documents to look at.")]
_Segments = Annotated[int, number("--segments", "Parts of a document.", 2)]
_Versions = Annotated[int, number("--versions", _VERSIONS)]


def audit(
    *,
    model: Model,
    texts: _Texts,
    source_format: SourceFormat = None,
    field: _Field = None,
    sample: _Sample = 1000,
    calibration: CalibrationOrNone = None,
    segments: _Segments = 5,
    versions: _Versions = 1,
    document_prompt: DocumentPrompt = None,
    batch_size: BatchSize = 32,
    device: Device = None,
    seed: Seed = 42,
    output: OutputFolder = None,
    display: Display,
) -> None:
    """What a model makes of the parts of your documents, no labels needed.

    Looks at a sample of documents: how much the model never reads, where its pooling token looks, and how much each position
    shows in the vector, plain and calibrated. Writes audit.json to the output folder; `evenspan report` makes a page of it.
    """
    extras.for_model(model)
    extras.for_source(texts, source_format)
    check_folder("--output", output)
    from evenspan.auditing.auditing import audit as run_audit
    from evenspan.auditing.sample import read_texts

    drawn = read_texts(texts, field, sample, seed, source_format)  # a wrong file is refused before a model is loaded
    notes = [drawn.in_words()] if drawn.left_out else []
    for note in notes:
        display.say(f"evenspan: {note}")
    loaded = load_model(model, device)
    if len(drawn.texts) < drawn.found:
        notes.append(f"A sample of {len(drawn.texts)} of {drawn.found} documents.")
    result = run_audit(
        loaded,
        drawn.texts,
        _own_setting(loaded, notes) if calibration is None else calibration,
        names=drawn.names,
        sample=None,
        segments=segments,
        versions=versions,
        document_prompt=document_prompt,
        batch_size=batch_size,
        seed=seed,
        progress=display.progress,
        notes=notes,
    )
    if output is not None:
        with made(output):
            result.write(output / "audit.json")
            write_run(output)
    display.show(result, result.to_json())


def _own_setting(model: SentenceTransformer, notes: list[str]) -> Calibration | Literal["none"]:
    """What to compare with where nobody said: the model's own calibration or the default one, if it takes that."""
    from evenspan.models.calibrating import calibration_of
    from evenspan.models.inspecting import inspect_model

    setting = calibration_of(model) or Calibration()
    inspection: Any = inspect_model(model, setting)
    if inspection.calibratable:
        return setting
    notes.append(f"There is no calibration to compare with. {inspection.reason}")
    return "none"
