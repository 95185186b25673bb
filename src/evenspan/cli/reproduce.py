"""`evenspan reproduce`: the paper's tables, run again."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from evenspan.cli import extras
from evenspan.cli.display import Display
from evenspan.cli.files import check_folder, made, write_run
from evenspan.cli.loading import load_model
from evenspan.cli.options import Encoding, SegmentEmbedder
from evenspan.cli.parsing import BadOptionError, choice, path, text

_TABLES = ("fineweb-posq", "posir", "nanobeir")
_SETTINGS = ("x-x", "x-en")

_PaperTable = Annotated[str, choice("TABLE", "Of the paper: fineweb-posq, posir or nanobeir.", *_TABLES)]
_NamedModel = Annotated[str, text("--model", "NAME", "E.g. BAAI/bge-m3, or a folder with that model.")]
_PaperModel = Annotated[str | None, text("--paper-model", "NAME", "The paper's name of it, if it cannot be told.")]
_Tiny = Annotated[bool, typer.Option("--tiny", help="A first look on a part of the data.")]
_Copy = Annotated[Path | None, path("--path", "DIR", "A local copy of the data set, in the hub's own layout.")]
_Languages = Annotated[list[str] | None, text("--language", "CODE", "posir: only this language; may be repeated.")]
_PosirSettings = Annotated[list[str] | None, choice("--setting", "posir: only this setting.", *_SETTINGS)]
_Folder = Annotated[Path, path("--output", "DIR", "Folder for results.", "-o")]


def reproduce(
    *,
    table: _PaperTable,
    model: _NamedModel,
    paper_model: _PaperModel = None,
    tiny: _Tiny = False,
    copy: _Copy = None,
    language: _Languages = None,
    setting: _PosirSettings = None,
    segment_embedder: SegmentEmbedder = None,
    output: _Folder = Path("reproduction"),
    encoding: Encoding,
    display: Display,
) -> None:
    """Run a table of the paper and set our figures beside the paper's.

    The figures stand beside the paper's, row by row, with the difference. A run that is interrupted goes on where it stopped.
    """
    extras.for_model(model, segment_embedder)
    extras.for_evaluation("Reproduction", table, methods=["segment-average"])
    check_folder("--output", output)
    arguments = encoding.arguments()
    if copy is not None and not copy.is_dir():
        raise BadOptionError(
            f"--path: {copy} is no folder: name a local copy of the data set, in the hub's own layout."
        )
    _check_posir(table, language or [], setting or [])
    from evenspan.evaluation.methods import SegmentAverage
    from evenspan.evaluation.reproducing import reproduce as run

    reproduced = run(
        table,
        load_model(model, encoding.device),
        paper_model=paper_model,
        tiny=tiny,
        output=output,
        path=copy,
        languages=language or None,
        settings=setting or _SETTINGS,
        segment_average=SegmentAverage(embedder=segment_embedder) if segment_embedder else SegmentAverage(),
        report=display.say,
        progress=display.progress,
        **arguments,
    )
    with made(output):
        (output / f"{table}.md").write_text(f"{reproduced}\n", encoding="utf-8")
        (output / f"{table}.json").write_text(reproduced.to_json() + "\n", encoding="utf-8")
        write_run(output)
    display.show(reproduced, reproduced.to_json(), str(reproduced))


def _check_posir(table: str, languages: list[str], settings: list[str]) -> None:
    if not languages and not settings:
        return
    if table != "posir":
        raise BadOptionError(f"--language and --setting are for the table posir, not {table}: leave them out.")
    from evenspan.evaluation.benchmarks.posir import LANGUAGES

    for code in languages:
        if code not in LANGUAGES:
            raise BadOptionError(f"--language: there is no {code!r} in PosIR; there are {', '.join(LANGUAGES)}.")
