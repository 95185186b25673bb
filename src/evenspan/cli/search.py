"""`evenspan search`: ask an index."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

from evenspan.cli import extras
from evenspan.cli.display import Display, quiet_libraries
from evenspan.cli.index import check_table
from evenspan.cli.loading import check_device, load_model
from evenspan.cli.messages import printable
from evenspan.cli.options import Device, Store, Table
from evenspan.cli.parsing import number, text

EPILOG = (
    "Filters: comparisons (=, !=, <, <=, >, >=, in (…), is null) of metadata with numbers, 'text', true and false, joined by "
    "and, or, not and parentheses: --where \"year >= 2020 and lang in ('de', 'fr')\""
)
_SHOWN = 300  # characters of a part
_MODEL = "Where the model that made the index lies now (default: where it was then)."

_Question = Annotated[str, text("QUESTION", "QUESTION", "In words.")]
_Count = Annotated[int, number("-k", "Documents to show.", 1, 1_000_000)]
_Where = Annotated[str | None, text("--where", "FILTER", "Only documents whose metadata pass, see below.")]
_OtherModel = Annotated[str | None, text("--model", "MODEL", _MODEL)]


def search(
    *,
    store: Store,
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
    check_table(store, table)
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
