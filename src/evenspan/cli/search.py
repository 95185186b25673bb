"""`evenspan search`: ask an index."""

from dataclasses import asdict
from typing import Annotated

import typer

from evenspan.cli import parsing
from evenspan.cli.loading import load_model, ready
from evenspan.cli.options import Device, Store, Table
from evenspan.cli.output import Display
from evenspan.cli.parsing import argument, number, option
from evenspan.formatting import clipped, tame

EPILOG = (
    "A filter compares metadata with numbers, 'text', true or false, using =, !=, <, <=, >, >=, in (…) and is null. Combine "
    "comparisons with and, or, not and parentheses: --where \"year >= 2020 and lang in ('de', 'fr')\""
)
_MODEL = "The model of the index, if it has moved since."
_HYBRID = "Also rank by words, with the full-text index of `index --full-text`, and merge both rankings."
_SHOWN = 300  # characters of a part


def search(
    *,
    store: Store,
    question: Annotated[str, argument("The question to search for.", "QUESTION")],
    k: Annotated[int, number("Number of documents to show.", 1, 1_000_000, "-k")] = 10,
    where: Annotated[str | None, option("Only documents that match this filter (see below).", "FILTER")] = None,
    model: Annotated[str | None, option(_MODEL, "MODEL", parsing.model_name)] = None,
    hybrid: Annotated[bool, typer.Option("--hybrid", help=_HYBRID)] = False,
    table: Table = None,
    device: Device = None,
    display: Display,
) -> None:
    """Search an index built by `evenspan index`.

    Queries are encoded by the model of the index: uncalibrated, with its query prompt. Shows rank, score, id, and the part of
    the document that matches best.
    """
    from evenspan.indexing import open_index
    from evenspan.indexing.filters import parse

    with open_index(store, table=table) as there:  # an index that is not there is no reason to load a model
        if where is not None:
            parse(where, there.columns)
        if hybrid:
            there.check_hybrid()
    ready(device)
    loaded = None if model is None else load_model(model, device)
    with open_index(store, loaded, table=table, device=device) as opened:
        results = opened.search(question, k, where, parts=True, hybrid=hybrid)
    lines = []
    for result in results:
        lines.append(f"{result.rank:3}. {result.score:.4f}  {' '.join(tame(result.id).split())}")
        if result.part is not None:
            lines.append(f"     {clipped(' '.join(tame(result.part).split()), _SHOWN)}")
    display.show("\n".join(lines) or "No documents found.", [asdict(result) for result in results])
