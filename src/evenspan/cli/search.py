"""`evenspan search`: ask an index."""

from __future__ import annotations

import argparse
import json
from typing import Any

from evenspan.cli.options import quiet_transformers

_SHOWN = 300  # characters of a part


def add_parser(commands: Any) -> None:
    """Declare the command."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "search",
        help="search an index that `evenspan index` made",
        description="Search with the query side of the model that made the index: uncalibrated, with its query prompt. "
        "Shows rank, score, id, and the part of the document that matches best.",
        epilog="filters: comparisons (=, !=, <, <=, >, >=, in (…), is null) of metadata with numbers, 'text', true and "
        "false, joined by and, or, not and parentheses: --where \"year >= 2020 and lang in ('de', 'fr')\"",
    )
    parser.add_argument("store", metavar="STORE", help="what `evenspan index` was given as its store")
    parser.add_argument("question", metavar="QUESTION")
    parser.add_argument("-k", type=int, default=10, help="documents to show (default: %(default)s)")
    parser.add_argument("--where", metavar="FILTER", help="only documents whose metadata pass, see below")
    parser.add_argument("--model", help="where the model that made the index lies now (default: where it was then)")
    parser.add_argument("--table", help="in PostgreSQL (default: evenspan)")
    parser.add_argument("--device", help="cpu, cuda, … (default: the best there is)")
    parser.add_argument("--json", action="store_true", help="print JSON, with whole texts and metadata")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Search and print what was found."""
    from dataclasses import asdict

    from evenspan.indexing import open_index

    quiet_transformers()
    model = None
    if options.model is not None:
        from evenspan.models.loading import load

        model = load(options.model, **({"device": options.device} if options.device else {}))
    with open_index(options.store, model, table=options.table, device=options.device) as index:
        results = index.search(options.question, options.k, options.where, parts=True)
    if options.json:
        print(json.dumps([asdict(result) for result in results], indent=2, ensure_ascii=False))
        return 0
    for result in results:
        print(f"{result.rank:3}. {result.score:.4f}  {printable(result.id)}")
        if result.part is not None:
            part = " ".join(printable(result.part).split())
            print(f"     {part[:_SHOWN]}{'…' if len(part) > _SHOWN else ''}")
    if not results:
        print("Nothing was found.")
    return 0


def printable(text: str) -> str:
    """Text from anywhere, without what would steer the terminal."""
    return "".join(letter if letter.isprintable() or letter in "\n\t " else "�" for letter in text)
