"""`evenspan reproduce`: the paper's tables, run again."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from evenspan.cli import parsing
from evenspan.cli.loading import load_model
from evenspan.cli.options import Encoding, SegmentEmbedder
from evenspan.cli.output import Display, made
from evenspan.cli.parsing import BadOptionError, choice, parameter

_COPY = "A local copy of the data set, in the hub's own layout."
_MODEL = "Such as BAAI/bge-m3, or a folder with that model."
_PAPER_MODEL = "The paper's name of the model, if its own name does not tell."
_SETTINGS = ("x-x", "x-en")


def _language(code: str) -> str:
    from evenspan.evaluation.benchmarks.posir import LANGUAGES

    if code not in LANGUAGES:
        raise ValueError(f"there is no {code!r} in PosIR; there are {', '.join(LANGUAGES)}.")
    return code


def reproduce(
    *,
    table: Annotated[
        str, choice("TABLE", "Of the paper: fineweb-posq, posir or nanobeir.", "fineweb-posq", "posir", "nanobeir")
    ],
    model: Annotated[str, parameter("--model", _MODEL, "MODEL", parsing.model)],
    paper_model: Annotated[str | None, parameter("--paper-model", _PAPER_MODEL, "NAME", parsing.text)] = None,
    tiny: Annotated[bool, typer.Option("--tiny", help="A first look on a part of the data.")] = False,
    path: Annotated[Path | None, parameter("--path", _COPY, "DIR", parsing.present_folder)] = None,
    language: Annotated[
        list[str] | None, parameter("--language", "posir: only this language. May be repeated.", "CODE", _language)
    ] = None,
    setting: Annotated[list[str] | None, choice("--setting", "posir: only this setting.", *_SETTINGS)] = None,
    segment_embedder: SegmentEmbedder = None,
    output: Annotated[Path, parameter("--output", "Folder for results.", "DIR", parsing.new_folder, "-o")] = Path(
        "reproduction"
    ),
    encoding: Encoding,
    display: Display,
) -> None:
    """Run a table of the paper and set our figures beside the paper's.

    Shows both figures and their difference, row by row. If it is interrupted, the same command goes on where it stopped.
    """
    if table != "posir" and (language or setting):
        raise BadOptionError(f"--language and --setting are for the table posir, not {table}: leave them out.")
    arguments = encoding.arguments()
    from evenspan.evaluation.evaluating import require_evaluation
    from evenspan.evaluation.methods import SegmentAverage
    from evenspan.evaluation.reproducing import reproduce as run

    require_evaluation("Reproduction", "chonkie", "datasets", "pyarrow")
    reproduced = run(
        table,
        load_model(model, encoding.device),
        paper_model=paper_model,
        tiny=tiny,
        output=output,
        path=path,
        languages=language or None,
        settings=setting or _SETTINGS,
        segment_average=SegmentAverage(segment_embedder) if segment_embedder else None,
        report=display.say,
        progress=display.progress,
        **arguments,
    )
    with made(output):
        (output / f"{table}.md").write_text(f"{reproduced}\n", encoding="utf-8")
        (output / f"{table}.json").write_text(reproduced.to_json() + "\n", encoding="utf-8")
    display.show(reproduced, reproduced.to_json(), str(reproduced))
