"""What a command says: its result on standard output, everything else on standard error."""

from __future__ import annotations

import itertools
import json
import os
import sys
from dataclasses import dataclass
from typing import Annotated, Any

import typer


@dataclass(frozen=True)
class Display:
    """How much is said, and for whom."""

    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, and nothing else on standard output.")] = False
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress and no remarks.")] = False
    debug: Annotated[bool, typer.Option("--debug", help="Show debug messages, and the traceback of errors.")] = False

    @property
    def progress(self) -> bool:
        """Whether bars may be shown; they are only in a terminal."""
        return not self.quiet

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


def quiet_libraries() -> None:
    """Silence the load reports and bars of other libraries, which would drown a command's own output."""
    os.environ.setdefault("HF_DATASETS_DISABLE_PROGRESS_BARS", "1")
    from huggingface_hub.utils import logging as hub
    from huggingface_hub.utils.tqdm import disable_progress_bars
    from transformers.utils import logging as transformers

    for log in (hub, transformers):
        silence: Any = log
        silence.set_verbosity_error()
    silence.disable_progress_bar()
    if not sys.stderr.isatty():
        disable_progress_bars()
