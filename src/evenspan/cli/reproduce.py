"""`evenspan reproduce`: the paper's tables, run again."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from evenspan.cli.options import add_encoding_options, default_cache, encoding_options, quiet_transformers, write_run


def add_parser(commands: Any) -> None:
    """Declare the command."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "reproduce",
        help="run a table of the paper and set our figures beside the paper's",
        description="Run one of the paper's tables for a model; the figures stand beside the paper's, row by row, with the "
        "difference. A run that is interrupted goes on where it stopped.",
    )
    parser.add_argument("table", choices=["fineweb-posq", "posir", "nanobeir"])
    parser.add_argument("--model", required=True, metavar="NAME", help="e.g. BAAI/bge-m3, or a folder with that model")
    parser.add_argument("--paper-model", metavar="NAME", help="the paper's name of the model, if it cannot be told")
    parser.add_argument("--tiny", action="store_true", help="a first look on a part of the data")
    parser.add_argument("--path", metavar="DIR", help="a local copy of the data set, in the hub's own layout")
    parser.add_argument(
        "--language", action="append", metavar="CODE", help="posir: only this language; may be repeated"
    )
    parser.add_argument("--setting", action="append", choices=["x-x", "x-en"], help="posir: only this setting")
    parser.add_argument("--segment-embedder", metavar="MODEL", help="for segment-average: a model, or 'self'")
    parser.add_argument(
        "--output", type=Path, default=Path("reproduction"), help="folder for results (default: %(default)s)"
    )
    add_encoding_options(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Run the table and print it."""
    from evenspan.evaluation.methods import SegmentAverage
    from evenspan.evaluation.reproducing import reproduce
    from evenspan.models.loading import load

    quiet_transformers()
    model = load(options.model, **({"device": options.device} if options.device else {}))
    segments = SegmentAverage(embedder=options.segment_embedder) if options.segment_embedder else SegmentAverage()
    table = reproduce(
        options.table,
        model,
        paper_model=options.paper_model,
        tiny=options.tiny,
        output=options.output,
        path=options.path,
        languages=options.language,
        settings=options.setting or ("x-x", "x-en"),
        segment_average=segments,
        report=lambda line: print(line, file=sys.stderr),
        cache=None if options.no_cache else (options.cache or default_cache()),
        **encoding_options(options),
    )
    (options.output / f"{options.table}.md").write_text(f"{table}\n", encoding="utf-8")
    (options.output / f"{options.table}.json").write_text(table.to_json() + "\n", encoding="utf-8")
    write_run(options.output)
    print(table)
    return 0
