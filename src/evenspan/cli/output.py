"""What a command says and writes: its result on standard output or in a folder, everything else on standard error."""

import itertools
import json
import logging
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from evenspan.cli.messages import one_line

_PACKAGES = ("evenspan", "torch", "transformers", "sentence-transformers")


@dataclass(frozen=True)
class Display:
    """How much is said, and for whom."""

    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Suppress progress, notes and warnings.")] = False
    debug: Annotated[bool, typer.Option("--debug", help="Show the log and full tracebacks.")] = False

    def say(self, line: str) -> None:
        """A remark beside the result."""
        if not self.quiet:
            print(line, file=sys.stderr, flush=True)

    def show(self, result: object, values: Any, markdown: str | None = None) -> None:
        """The result: as text, in a terminal as the tables of its Markdown, or as JSON (values, or JSON text)."""
        if self.as_json:
            print(values if isinstance(values, str) else json.dumps(values, indent=2, ensure_ascii=False))
        elif markdown is not None and sys.stdout.isatty():
            _draw(markdown)
        else:
            print(result)
        sys.stdout.flush()


def _draw(markdown: str) -> None:
    """Text as it is, and its Markdown tables with columns that fit the terminal; long names go on in the next line."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    console = Console(highlight=False, markup=False)
    for is_table, group in itertools.groupby(markdown.splitlines(), lambda line: line.startswith("|")):
        if not is_table:
            console.print("\n".join(group))
            continue
        header, rule, *body = ([cell.strip() for cell in line.strip("|").split("|")] for line in group)
        table = Table(box=box.SIMPLE, pad_edge=False)
        for name, dashes in zip(header, rule, strict=True):
            numbers = dashes.endswith(":")
            table.add_column(name, justify="right" if numbers else "left", no_wrap=numbers, overflow="fold")
        for row in body:
            table.add_row(*row)
        console.print(table)


def how_to_use(file: Path, calibration: object) -> str:
    """How other commands take an answer that was written to a file."""
    return f"To use it: --calibration {file}" if calibration else f"--calibration {file} means no calibration."


@contextmanager
def made(folder: Path) -> Iterator[None]:
    """Make a folder to write to, and write down the command and versions there; if that fails, what is empty goes again."""
    new = [place for place in (folder, *folder.parents) if not place.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    try:
        yield
        from evenspan.identity import versions

        run = {"command": ["evenspan", *sys.argv[1:]], "versions": versions(*_PACKAGES)}
        (folder / "run.json").write_text(json.dumps(run, indent=2) + "\n", encoding="utf-8")
    except BaseException:
        with suppress(OSError):  # there is something in it
            for place in new:
                place.rmdir()
        raise


@contextmanager
def remarks(*, quiet: bool, debug: bool) -> Iterator[None]:
    """Warnings in a line each, and the log of evenspan, for as long as a command runs."""
    logger, handler = logging.getLogger("evenspan"), logging.StreamHandler(sys.stderr)
    level = logger.level
    with warnings.catch_warnings():
        if quiet:
            warnings.simplefilter("ignore")
        warnings.showwarning = lambda text, *_: print(f"evenspan: warning: {one_line(str(text))}", file=sys.stderr)
        if debug:
            logger.addHandler(handler)
            logger.setLevel(logging.DEBUG)
        try:
            yield
        finally:
            logger.removeHandler(handler)
            logger.setLevel(level)
