"""`evenspan delete`: remove documents from an index."""

from typing import Annotated

from evenspan.cli import parsing
from evenspan.cli.options import Store, Table
from evenspan.cli.output import Display
from evenspan.cli.parsing import option
from evenspan.formatting import counted

EPILOG = """Examples:

\b
evenspan delete my-index --id a17 --id a18
evenspan delete my-index --where "year < 2000 and lang = 'de'\""""
_ID = "Id of a document to remove. May be repeated."


def delete(
    *,
    store: Store,
    ids: Annotated[list[str] | None, option(_ID, "ID", parsing.text, "--id")] = None,
    where: Annotated[str | None, option("Only documents that match this filter.", "FILTER")] = None,
    table: Table = None,
    display: Display,
) -> None:
    """Remove documents from an index, by id or by filter.

    To remove documents missing from the source, use `evenspan index --prune`.
    """
    from evenspan.indexing import delete_documents

    removed = delete_documents(store, ids or None, where=where, table=table)
    display.show(f"{counted(removed, 'document')} removed", {"removed": removed})
