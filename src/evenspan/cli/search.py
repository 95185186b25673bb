"""`evenspan search`: ask an index."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from evenspan.cli import extras, parsing
from evenspan.cli.display import Display, quiet_libraries
from evenspan.cli.index import check_store
from evenspan.cli.loading import check_device, load_model
from evenspan.cli.messages import printable
from evenspan.cli.options import Device, Table

EPILOG = (
    "Filters: comparisons (=, !=, <, <=, >, >=, in (…), is null) of metadata with numbers, 'text', true and false, joined by "
    "and, or, not and parentheses: --where \"year >= 2020 and lang in ('de', 'fr')\""
)
_SHOWN = 300  # characters of a part
_MOST = 1_000_000  # documents

_Store = Annotated[
    str,
    typer.Argument(
        metavar="STORE", help="What `evenspan index` was given as its store.", parser=parsing.location("STORE")
    ),
]
_Question = Annotated[str, typer.Argument(metavar="QUESTION", help="In words.", parser=parsing.text("QUESTION"))]
_Count = Annotated[
    int, typer.Option("-k", metavar="N", help="Documents to show.", parser=parsing.whole("-k", 1, _MOST))
]
_Where = Annotated[
    str | None,
    typer.Option(
        "--where",
        metavar="FILTER",
        help="Only documents whose metadata pass, see below.",
        parser=parsing.text("--where"),
    ),
]
_OtherModel = Annotated[
    str | None,
    typer.Option(
        "--model",
        metavar="MODEL",
        help="Where the model that made the index lies now (default: where it was then).",
        parser=parsing.text("--model"),
    ),
]


def search(
    *,
    store: _Store,
    question: _Question,
    k: _Count = 10,
    where: _Where = None,
    model: _OtherModel = None,
    table: Table = None,
    device: Device = None,
    display: Display,
) -> None:
    """Search an index that `evenspan index` made.

    Searches with the query side of the model that made the index: uncalibrated, with its query prompt. Shows rank, score, id,
    and the part of the document that matches best.
    """
    extras.for_model(model)
    extras.for_store("Searching", store)
    check_store(store, table)
    from evenspan.indexing import open_index
    from evenspan.indexing.filters import parse

    quiet_libraries()
    with open_index(store, table=table) as there:  # an index that is not there is no reason to load a model
        if where is not None:
            parse(where, there.columns)
    check_device(device)
    loaded = None if model is None else load_model(model, device)
    with open_index(store, loaded, table=table, device=device) as opened:
        results = opened.search(question, k, where, parts=True)
    lines = []
    for result in results:
        lines.append(f"{result.rank:3}. {result.score:.4f}  {printable(result.id)}")
        if result.part is not None:
            part = " ".join(printable(result.part).split())
            lines.append(f"     {part[:_SHOWN]}{'…' if len(part) > _SHOWN else ''}")
    display.show("\n".join(lines) or "Nothing was found.", [asdict(result) for result in results])
