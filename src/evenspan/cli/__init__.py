"""The `evenspan` command."""

import contextlib
import io
import os
import sys
import traceback
from collections.abc import Sequence
from typing import Annotated, Any

import typer

from evenspan import __version__
from evenspan.cli import (
    advise,
    audit,
    cache,
    delete,
    demo,
    evaluate,
    index,
    inspect,
    report,
    reproduce,
    save,
    search,
    serve,
    sweep,
    tune,
    verify,
)  # fmt: skip
from evenspan.cli.messages import is_expected, message, one_line
from evenspan.cli.options import expanded
from evenspan.cli.output import remarks
from evenspan.cli.parsing import BadOptionError

_USAGE_ERROR: Any = typer.BadParameter.__mro__[1]  # newer releases of typer have a click of their own
_CLOSED_PIPE = 141  # as shells report programs that die of one

# Plain help and no tracebacks of typer's own: rich would take longer to import than most commands need to answer.
app = typer.Typer(name="evenspan", rich_markup_mode=None, pretty_exceptions_enable=False)
_COMMANDS = (
    demo, inspect, advise, audit, index, search, delete, verify, serve, evaluate, sweep, tune, save, report, reproduce,
    cache,
)  # fmt: skip
for module in _COMMANDS:
    command = getattr(module, module.__name__.rpartition(".")[2])
    app.command(epilog=getattr(module, "EPILOG", None))(expanded(command))


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"evenspan {__version__}")
        raise typer.Exit


_Version = typer.Option("--version", help="Show the version and exit.", callback=_show_version, is_eager=True)


@app.callback()
def evenspan(version: Annotated[bool, _Version] = False) -> None:
    """Position-fair dense retrieval: attention calibration for the embedding model you already use."""


_ROOT: Any = typer.main.get_command(app)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    given = sys.argv[1:] if arguments is None else list(arguments)
    for stream in (sys.stdout, sys.stderr):  # a narrow encoding must not cost the result of long work
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    with remarks(quiet="--quiet" in given or "-q" in given, debug="--debug" in given):
        try:
            status = _run(given)
            sys.stdout.flush()
        except (KeyboardInterrupt, typer.Abort):
            print("evenspan: interrupted", file=sys.stderr)
            return 130
        except BrokenPipeError:  # whoever reads has read enough
            with contextlib.suppress(OSError, ValueError):  # nothing is written on exit to a pipe that is closed
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return _CLOSED_PIPE
        except Exception as error:
            return _report(error, given)
    return status


def _run(given: list[str]) -> int:
    """Parse the command line and run its command; without one, show the help as a hint."""
    if "_EVENSPAN_COMPLETE" in os.environ:  # a shell that asks for completions
        _ROOT.main(given, prog_name="evenspan")
    if any("\0" in argument for argument in given):
        raise BadOptionError("An argument contains a NUL character.")
    try:
        command = _ROOT.commands.get(given[0] if given else None)
        if command is None:
            context = _ROOT.make_context("evenspan", list(given) or ["--help"])
        else:  # not through the root, whose options cost an import that most command lines do not need
            parent = _ROOT.context_class(_ROOT, info_name="evenspan")
            context = command.make_context(given[0], given[1:], parent=parent)
        with context:
            context.command.invoke(context)
    except typer.Exit as stop:
        return stop.exit_code if given else 2
    return 0


def _report(error: Exception, given: list[str]) -> int:
    """Say what went wrong, in a line."""
    command, status = _ROOT.commands.get(given[0] if given else None), 2
    if "--debug" in given:
        traceback.print_exception(error)
    if isinstance(error, BadOptionError) or is_expected(error):
        options = [option for option in getattr(command, "params", ()) if option.opts[0].startswith("-")]
        text = message(error, {option.name: option.opts[0] for option in options})
    elif isinstance(error, _USAGE_ERROR):
        where = "evenspan" if command is None else f"evenspan {given[0]}"
        said = one_line(error.format_message())
        text = f"{said}{'' if said.endswith(('.', '?')) else '.'} See {where} --help."
    else:
        about, status = traceback.format_exception_only(error)[-1].strip(), 1
        text = one_line(f"unexpected error ({about}); run again with --debug for the traceback")
    print(f"evenspan: {text}", file=sys.stderr)
    return status
