"""The commands, put together."""

from __future__ import annotations

from typing import Annotated

import typer

from evenspan import __version__
from evenspan.cli import audit, cache, demo, evaluate, index, inspect, report, reproduce, search, sweep, tune
from evenspan.cli.options import expanded

# Plain help and no tracebacks of typer's own: rich would take longer to import than most commands need to answer.
app = typer.Typer(name="evenspan", rich_markup_mode=None, pretty_exceptions_enable=False)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"evenspan {__version__}")
        raise typer.Exit


@app.callback()
def evenspan(
    version: Annotated[
        bool, typer.Option("--version", help="Show the version and exit.", callback=_show_version, is_eager=True)
    ] = False,
) -> None:
    """Position-fair dense retrieval: attention calibration for the embedding model you already use."""


for command, epilog in (
    (demo.demo, None),
    (inspect.inspect, None),
    (audit.audit, None),
    (index.index, index.EPILOG),
    (search.search, search.EPILOG),
    (evaluate.evaluate, None),
    (sweep.sweep, None),
    (tune.tune, None),
    (report.report, None),
    (reproduce.reproduce, None),
    (cache.cache, None),
):
    app.command(epilog=epilog)(expanded(command))
