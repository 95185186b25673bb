"""`evenspan verify`: is everything in an index whole?"""

from typing import Annotated

import typer

from evenspan.cli.options import Store, Table
from evenspan.cli.output import Display

_REPAIR = "Forget the documents that are lost: the command that made the index then encodes them again."


def verify(
    *,
    store: Store,
    repair: Annotated[bool, typer.Option("--repair", help=_REPAIR)] = False,
    table: Table = None,
    display: Display,
) -> None:
    """Read an index in full, and say what is damaged or missing.

    Runs of `evenspan index` look at no more than they need. The exit code is 1 if something is wrong and was not repaired.
    """
    from evenspan.indexing import verify_index

    verified = verify_index(store, repair=repair, table=table)
    display.show(verified, verified.to_json())
    if verified.problems and not repair:
        raise typer.Exit(1)
