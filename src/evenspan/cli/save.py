"""`evenspan save`: a model and its calibration as a folder that every framework can load."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from evenspan.calibration import Calibration
from evenspan.cli import options, parsing
from evenspan.cli.loading import load_model
from evenspan.cli.output import Display
from evenspan.cli.parsing import BadOptionError, argument, choice, option

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

    from evenspan.auditing.audit_result import Audit

EPILOG = """Examples:

\b
evenspan save BAAI/bge-m3 fair-bge-m3 --calibration soft,strength=0.7
evenspan audit BAAI/bge-m3 --texts corpus.jsonl --output audit
evenspan save BAAI/bge-m3 fair-bge-m3 --overwrite --audit audit/audit.json"""

_TASK = "Task of a plain encode() call (default: the model's own)."
_AUDIT = "An audit of this model with this calibration, to put into the model card."


def save(
    *,
    model: options.Model,
    folder: Annotated[Path, argument("Output folder.", "FOLDER", parsing.new_folder)],
    calibration: options.CalibrationOrNone = None,
    default_task: Annotated[str | None, choice(_TASK, "document|none")] = None,
    audit: Annotated[Path | None, option(_AUDIT, "FILE", parsing.any_path)] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Overwrite an existing model.")] = False,
    display: Display,
) -> None:
    """Save a model together with its calibration.

    Load it with evenspan.load(FOLDER), or in frameworks with SentenceTransformer(FOLDER, trust_remote_code=True) where
    evenspan is installed. Loading it without its calibration fails. --calibration none saves the plain model.
    """
    _refuse_what_is_there(folder, overwrite)
    from evenspan.models.calibrating import calibration_of, restore
    from evenspan.models.card import add_section
    from evenspan.models.saved import saving_over

    figures = None if audit is None else _read(audit)
    loaded = load_model(model, "cpu")
    if calibration == "none":
        restore(loaded)
    else:
        _calibrate(loaded, calibration, default_task)
    setting = calibration_of(loaded)
    if figures is not None:
        _refuse_other_audits(figures, loaded, setting)
    with saving_over(folder):  # a plain model would not do so by itself
        loaded.save_pretrained(str(folder))
    if figures is not None:
        add_section(folder, "Audit", _in_markdown(figures))
    values = {"folder": str(folder), "model": model, "calibration": None if setting is None else str(setting)}
    how = "plain" if setting is None else f"calibrated with {setting}"
    display.show(f"Saved {model} to {folder}, {how}. Load it with evenspan.load({str(folder)!r}).", values)


def _refuse_what_is_there(folder: Path, overwrite: bool) -> None:
    if not folder.is_dir() or not any(folder.iterdir()):
        return
    if not (folder / "modules.json").exists():
        raise BadOptionError(f"{folder} contains other files: choose another folder.")
    if not overwrite:
        raise BadOptionError(f"{folder} already contains a model: choose another folder, or give --overwrite.")


def _read(audit: Path) -> "Audit":
    from evenspan.auditing.audit_result import Audit

    try:
        return Audit.read(audit)
    except (RecursionError, ValueError) as error:
        raise BadOptionError(f"--audit: cannot read {audit} as an audit ({error}).") from error


def _calibrate(model: "SentenceTransformer", calibration: Calibration | None, default_task: str | None) -> None:
    """Calibrate a model as it was told; what is not told stays as the model has it."""
    from evenspan.models.calibrating import calibrate, calibration_of
    from evenspan.models.modules import calibrated_module

    module = calibrated_module(model)
    own = None if module is None else module.default_task
    task = {None: own, "none": None}.get(default_task, default_task)
    calibrate(model, calibration or calibration_of(model) or Calibration(), task)


def _refuse_other_audits(audit: "Audit", model: "SentenceTransformer", calibration: Calibration | None) -> None:
    from evenspan.identity import weights_digest

    if calibration is None:
        raise BadOptionError("--audit needs a calibration: leave out --audit or --calibration none.")
    if audit.calibration != str(calibration):
        raise BadOptionError(
            f"--audit: it measured {audit.calibration!r}, and the model is saved with {str(calibration)!r}."
        )
    if audit.setting.get("weights_sha256") != weights_digest(model):
        raise BadOptionError("--audit: it measured other weights: audit this model.")


def _in_markdown(audit: "Audit") -> str:
    from evenspan.auditing.findings import audit_findings, position_table

    parts = [f"- **{finding.lead}** {finding.text}" for finding in audit_findings(audit)]
    plain, calibrated = audit.representations
    if plain is not None:
        parts.append(f"\n```text\n{position_table(plain, calibrated)}\n```")
    return "\n".join([*parts, "\nMeasured by `evenspan audit`, without labels."])
