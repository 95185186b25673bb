"""`evenspan reproduce`: the paper's tables, run again."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from evenspan.cli import extras, parsing
from evenspan.cli.display import Display
from evenspan.cli.files import check_folder, made, write_run
from evenspan.cli.loading import load_model
from evenspan.cli.options import Encoding, SegmentEmbedder
from evenspan.cli.parsing import BadOptionError

_TABLES = ("fineweb-posq", "posir", "nanobeir")
_SETTINGS = ("x-x", "x-en")

_PaperTable = Annotated[
    str,
    typer.Argument(metavar="TABLE", help="fineweb-posq, posir or nanobeir.", parser=parsing.choice("TABLE", *_TABLES)),
]
_NamedModel = Annotated[
    str,
    typer.Option(
        "--model", metavar="NAME", help="E.g. BAAI/bge-m3, or a folder with that model.", parser=parsing.text("--model")
    ),
]
_PaperModel = Annotated[
    str | None,
    typer.Option(
        "--paper-model",
        metavar="NAME",
        help="The paper's name of the model, if it cannot be told.",
        parser=parsing.text("--paper-model"),
    ),
]
_Tiny = Annotated[bool, typer.Option("--tiny", help="A first look on a part of the data.")]
_Copy = Annotated[
    Path | None,
    typer.Option(
        "--path",
        metavar="DIR",
        help="A local copy of the data set, in the hub's own layout.",
        parser=parsing.path("--path"),
    ),
]
_Languages = Annotated[
    list[str] | None,
    typer.Option(
        "--language",
        metavar="CODE",
        help="posir: only this language; may be repeated.",
        parser=parsing.text("--language"),
    ),
]
_PosirSettings = Annotated[
    list[str] | None,
    typer.Option(
        "--setting",
        metavar="x-x|x-en",
        help="posir: only this setting.",
        parser=parsing.choice("--setting", *_SETTINGS),
    ),
]
_Folder = Annotated[
    Path, typer.Option("--output", "-o", metavar="DIR", help="Folder for results.", parser=parsing.path("--output"))
]


def reproduce(
    *,
    table: _PaperTable,
    model: _NamedModel,
    paper_model: _PaperModel = None,
    tiny: _Tiny = False,
    path: _Copy = None,
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
    if path is not None and not path.is_dir():
        raise BadOptionError(
            f"--path: {path} is no folder: name a local copy of the data set, in the hub's own layout."
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
        path=path,
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
