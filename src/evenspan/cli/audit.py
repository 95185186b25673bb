"""`evenspan audit`: what a model makes of each part of your documents, without labels."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any, Literal

from evenspan.calibration import Calibration
from evenspan.cli.options import MODEL_HELP, calibration, quiet_transformers, write_run
from evenspan.corpus.formats import FORMATS


def add_parser(commands: Any) -> None:
    """Declare the command."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "audit",
        help="what a model makes of the parts of your documents, no labels needed",
        description="Look at a sample of documents: how much the model never reads, where its pooling token looks, and how "
        "much each position shows in the vector, plain and calibrated. Writes audit.json to the output folder; `evenspan "
        "report` makes a page of it.",
    )
    parser.add_argument("model", metavar="MODEL", help=MODEL_HELP)
    parser.add_argument(
        "--texts",
        required=True,
        metavar="FILE|DIR",
        help="documents: .jsonl, .csv, .tsv, .parquet, .txt or .md, also with .gz or .zst; a folder, a glob, '-' for standard "
        "input, or hf:OWNER/NAME[:CONFIG[:SPLIT]]",
    )
    parser.add_argument("--format", choices=FORMATS, help="of the texts, where their name does not say")
    parser.add_argument("--field", metavar="NAME", help="the field of the text (default: text, or the only one)")
    parser.add_argument("--sample", type=int, default=1000, metavar="N", help="documents to look at (default: 1000)")
    parser.add_argument(
        "--calibration",
        type=_calibration_or_none,
        help=f"the setting to compare with, or 'none' (default: the model's own, or '{Calibration()}')",
    )
    parser.add_argument("--segments", type=int, default=5, metavar="N", help="parts of a document (default: 5)")
    parser.add_argument(
        "--versions",
        type=int,
        default=1,
        metavar="N",
        help="random orders of its segments that a document is encoded in: more where documents are few (default: 1)",
    )
    parser.add_argument("--document-prompt", metavar="TEXT", help="in front of documents (default: the model's own)")
    parser.add_argument("--batch-size", type=int, default=32, help="(default: %(default)s)")
    parser.add_argument("--device", help="cpu, cuda, … (default: the best there is)")
    parser.add_argument("--seed", type=int, default=42, help="(default: %(default)s)")
    parser.add_argument("--json", action="store_true", help="print JSON instead of words")
    parser.add_argument("-o", "--output", type=Path, metavar="DIR", help="write audit.json here")
    parser.set_defaults(run=run)


def _calibration_or_none(text: str) -> Calibration | str:
    return "none" if text == "none" else calibration(text)


def run(options: argparse.Namespace) -> int:
    """Audit a model and say what was found."""
    from evenspan.auditing.auditing import audit, check_options
    from evenspan.auditing.sample import read_texts
    from evenspan.models.calibrating import calibration_of
    from evenspan.models.inspecting import inspect_model
    from evenspan.models.loading import load

    quiet_transformers()
    check_options(options.sample, options.segments, options.versions, options.batch_size, options.seed)
    if options.output is not None:
        options.output.mkdir(parents=True, exist_ok=True)
    # A wrong file is refused before a model is loaded.
    found = read_texts(options.texts, options.field, options.sample, options.seed, options.format)
    if found.left_out:
        print(f"evenspan: {found.in_words()}", file=sys.stderr)
    model = load(options.model, **({"device": options.device} if options.device else {}))
    setting: Calibration | Literal["none"] = "none"
    notes = [found.in_words()] if found.left_out else []
    if len(found.texts) < found.found:
        notes.append(f"A sample of {len(found.texts)} of {found.found} documents.")
    if options.calibration is None:
        setting = calibration_of(model) or Calibration()
        looked_at = inspect_model(model, setting)
        if not looked_at.calibratable:
            notes.append(f"There is no calibration to compare with. {looked_at.reason}")
            setting = "none"
    else:
        setting = options.calibration
    result = audit(
        model,
        found.texts,
        setting,
        names=found.names,
        sample=None,
        segments=options.segments,
        versions=options.versions,
        document_prompt=options.document_prompt,
        batch_size=options.batch_size,
        seed=options.seed,
        notes=notes,
    )
    if options.output is not None:
        result.write(options.output / "audit.json")
        write_run(options.output)
    print(result.to_json() if options.json else result)
    return 0
