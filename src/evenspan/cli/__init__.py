"""The `evenspan` command."""

from __future__ import annotations

import contextlib
import functools
import io
import logging
import os
import sys
import traceback
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import typer

from evenspan.cli.messages import is_expected, message, one_line, unexpected
from evenspan.cli.parsing import BadOptionError

_USAGE_ERROR: Any = typer.BadParameter.__mro__[1]  # newer releases of typer have a click of their own
_CLOSED_PIPE = 141  # as shells report programs that die of one


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    given = sys.argv[1:] if arguments is None else list(arguments)
    for stream in (sys.stdout, sys.stderr):  # a narrow encoding must not cost the result of long work
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    with _remarks(quiet="--quiet" in given or "-q" in given, debug="--debug" in given):
        try:
            status = _run(given)
            sys.stdout.flush()
        except (KeyboardInterrupt, typer.Abort):
            print("evenspan: interrupted", file=sys.stderr)
            return 130
        except BrokenPipeError:  # whoever reads has read enough
            _discard_output()
            return _CLOSED_PIPE
        except Exception as error:
            return _report(error, given)
    return status


def _run(given: list[str]) -> int:
    """Parse the command line and run its command; without one, show the help as a hint."""
    if "_EVENSPAN_COMPLETE" in os.environ:  # a shell that asks for completions
        _root().main(given, prog_name="evenspan")
    if any("\0" in argument for argument in given):
        raise BadOptionError("An argument holds a NUL character, which no name and no text may hold.")
    try:
        command = _command(given)
        if command is None:
            context = _root().make_context("evenspan", list(given) or ["--help"])
        else:  # not through the root, whose options cost an import that most command lines do not need
            parent = _root().context_class(_root(), info_name="evenspan")
            context = command.make_context(given[0], given[1:], parent=parent)
        with context:
            context.command.invoke(context)
    except typer.Exit as stop:
        return stop.exit_code if given else 2
    return 0


def _report(error: Exception, given: list[str]) -> int:
    """Say what went wrong, in a line."""
    command = _command(given)
    if "--debug" in given:
        traceback.print_exception(error)
    if isinstance(error, _USAGE_ERROR):
        where = "evenspan" if command is None else f"evenspan {given[0]}"
        text, status = f"{one_line(error.format_message()).rstrip('.')}. See {where} --help.", 2
    elif isinstance(error, BadOptionError) or is_expected(error):
        options = getattr(command, "params", ())
        flags = {option.name: option.opts[0] for option in options if option.opts[0].startswith("-")}
        text, status = message(error, flags), 2
    else:
        text, status = unexpected(error), 1
    print(f"evenspan: {text}", file=sys.stderr)
    return status


@functools.cache
def _root() -> Any:
    from evenspan.cli.app import app

    return typer.main.get_command(app)


def _command(given: list[str]) -> Any:
    """The command that a command line begins with, None without one."""
    return _root().commands.get(given[0]) if given else None


@contextlib.contextmanager
def _remarks(*, quiet: bool, debug: bool) -> Iterator[None]:
    """Warnings in a line each, and the log of evenspan, for as long as a command runs."""
    logger, handler = logging.getLogger("evenspan"), logging.StreamHandler(sys.stderr)
    level = logger.level
    with warnings.catch_warnings():
        if quiet:
            warnings.simplefilter("ignore")
        warnings.showwarning = _show_warning  # type: ignore[assignment]
        if debug:
            logger.addHandler(handler)
            logger.setLevel(logging.DEBUG)
        try:
            yield
        finally:
            logger.removeHandler(handler)
            logger.setLevel(level)


def _show_warning(text: Warning | str, *_: object) -> None:
    print(f"evenspan: warning: {one_line(str(text))}", file=sys.stderr)


def _discard_output() -> None:
    """Let nothing be written on exit to a pipe that is closed."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
