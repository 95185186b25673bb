"""`evenspan verify`: check an index for damage."""

from typing import Annotated

import typer

from evenspan.cli.options import Store, Table
from evenspan.cli.output import Display

_REPAIR = "Drop lost documents from the index; the command that built it then encodes them again."


def verify(
    *,
    store: Store,
    repair: Annotated[bool, typer.Option("--repair", help=_REPAIR)] = False,
    table: Table = None,
    display: Display,
) -> None:
    """Read a whole index and report what is damaged or missing.

    `evenspan index` does not read the whole index; this command does. Exits with 1 if there is damage that was not repaired.
    """
    from evenspan.indexing import verify_index

    verified = verify_index(store, repair=repair, table=table)
    display.show(verified, verified.to_json())
    if verified.problems and not repair:
        raise typer.Exit(1)
