"""`evenspan reproduce`: the paper's tables, run again."""

from pathlib import Path
from typing import Annotated

import typer

from evenspan.cli import parsing
from evenspan.cli.loading import load_model
from evenspan.cli.options import Encoding, SegmentEmbedder
from evenspan.cli.output import Display, made
from evenspan.cli.parsing import BadOptionError, choice, option
from evenspan.errors import require_evaluation

_COPY = "Local copy of the data set, with the layout of the hub."
_TABLE = "The paper's table: fineweb-posq, posir or nanobeir."


def _language(code: str) -> str:
    from evenspan.evaluation.benchmarks.posir import LANGUAGES

    if code not in LANGUAGES:
        raise ValueError(f"unknown language {code!r}. Available: {', '.join(LANGUAGES)}.")
    return code


def reproduce(
    *,
    table: Annotated[str, choice(_TABLE, "fineweb-posq|posir|nanobeir", metavar="TABLE", kind=typer.Argument)],
    model: Annotated[str, option("A name such as BAAI/bge-m3, or a model folder.", "MODEL", parsing.model_name)],
    paper_model: Annotated[str | None, option("The model's name in the paper, if it differs.")] = None,
    tiny: Annotated[bool, typer.Option("--tiny", help="Use only a part of the data.")] = False,
    path: Annotated[Path | None, option(_COPY, "DIR", parsing.present_folder)] = None,
    language: Annotated[
        list[str] | None, option("Only this language (posir). May be repeated.", "CODE", _language)
    ] = None,
    setting: Annotated[list[str] | None, choice("Only this setting (posir).", "x-x|x-en")] = None,
    segment_embedder: SegmentEmbedder = None,
    output: Annotated[Path, option("Write results here.", "DIR", parsing.new_folder, "--output", "-o")] = Path(
        "reproduction"
    ),
    encoding: Encoding,
    display: Display,
) -> None:
    """Reproduce a table of the paper, for any model.

    Shows figures with intervals and changes from no calibration, beside the paper's if it has the model, and in how many cases
    the paper's claims hold. If interrupted, the same command resumes where it stopped.
    """
    if table != "posir" and (language or setting):
        raise BadOptionError(f"--language and --setting are for the table posir, not {table}: leave them out.")
    require_evaluation("Reproduction", "chonkie", "datasets", "pyarrow")
    arguments = encoding.arguments()
    from evenspan.evaluation.methods import SegmentAverage
    from evenspan.sweeps.reproducing import reproduce as run

    reproduced = run(
        table,
        load_model(model, encoding.device),
        paper_model=paper_model,
        tiny=tiny,
        output=output,
        path=path,
        languages=language or None,
        settings=setting or ("x-x", "x-en"),
        segment_average=SegmentAverage(segment_embedder) if segment_embedder else None,
        report=display.say,
        progress=not display.quiet,
        **arguments,
    )
    with made(output):
        (output / f"{table}.md").write_text(f"{reproduced}\n", encoding="utf-8")
        (output / f"{table}.tex").write_text(f"{reproduced.to_latex()}\n", encoding="utf-8")
        (output / f"{table}.json").write_text(reproduced.to_json() + "\n", encoding="utf-8")
    display.show(reproduced, reproduced.to_json(), str(reproduced))
