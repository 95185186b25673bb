"""One progress bar for all long work: on standard error, in a terminal or a notebook, and nowhere else."""

from __future__ import annotations

import sys
import time
from typing import Any


class ProgressBar:
    """A named bar, a count, a rate and the time left.

    Args:
        description: what is going on, in words that a newcomer understands.
        total: how much there is to do; None if nobody knows.
        unit: what is counted.
        shown: False for none, whatever standard error is.

    Example:
        >>> with ProgressBar("Encoding documents", total=3, shown=False) as bar:
        ...     bar.advance(3)
        >>> bar.done
        3
    """

    def __init__(
        self, description: str, total: float | None = None, *, unit: str = "texts", shown: bool = True
    ) -> None:
        self.description, self.total, self.unit = description, total, unit
        self.done: float = 0
        self.note = ""  # shown in place of the rate
        self.began = time.perf_counter()
        self._bar = _bar() if shown else None
        self._task = self._bar and self._bar.add_task(description, total=total, words="")

    def advance(self, amount: float = 1) -> None:
        """Count work that is done."""
        self.done += amount
        self.refresh()

    def refresh(self, total: float | None = None) -> None:
        """Show what is known now; `total` replaces the total."""
        self.total = self.total if total is None else total
        if self._bar is not None:
            rate = self.done / max(time.perf_counter() - self.began, 1e-9)
            words = self.note or f"{self.done:,.0f} {self.unit}, {rate:,.1f} a second"
            self._bar.update(self._task, completed=self.done, total=self.total, words=words)

    def __enter__(self) -> ProgressBar:
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()


def _bar() -> Any:
    """A bar of rich, or None where nobody would see it."""
    from rich.console import Console

    console = Console(stderr=True)
    # Rich also takes a file for a terminal where FORCE_COLOR is set, as it is in many a CI.
    if not (sys.stderr.isatty() or console.is_jupyter):
        return None
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    texts = [TextColumn(f"{{task.{name}}}", markup=False) for name in ("description", "fields[words]")]
    return Progress(texts[0], BarColumn(), texts[1], TimeElapsedColumn(), TimeRemainingColumn(), console=console)
