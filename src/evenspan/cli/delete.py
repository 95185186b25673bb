"""`evenspan delete`: documents out of an index."""

from typing import Annotated

from evenspan.cli import parsing
from evenspan.cli.options import Store, Table
from evenspan.cli.output import Display
from evenspan.cli.parsing import option

EPILOG = """Examples:

\b
evenspan delete my-index --id a17 --id a18
evenspan delete my-index --where "year < 2000 and lang = 'de'\""""
_ID = "The id of a document to remove. May be repeated."


def delete(
    *,
    store: Store,
    ids: Annotated[list[str] | None, option(_ID, "ID", parsing.text, "--id")] = None,
    where: Annotated[str | None, option("Remove the documents whose metadata pass.", "FILTER")] = None,
    table: Table = None,
    display: Display,
) -> None:
    """Remove documents from an index, by their ids or by a filter.

    What is gone from the source is removed by `evenspan index --prune`.
    """
    from evenspan.indexing import delete_documents

    removed = delete_documents(store, ids or None, where=where, table=table)
    display.show(f"{removed:,} documents removed", {"removed": removed})
