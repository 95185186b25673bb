"""A bar is for people who look: in a terminal, and nowhere else."""

from __future__ import annotations

import io
import sys

from evenspan.progress import ProgressBar


def drawn(monkeypatch, *, terminal: bool, shown: bool = True) -> str:
    stream = io.StringIO()
    stream.isatty = lambda: terminal  # type: ignore[method-assign]
    monkeypatch.setattr(sys, "stderr", stream)
    with ProgressBar("Encoding documents", total=2, shown=shown) as bar:
        bar.advance(2)
    assert bar.done == 2
    return stream.getvalue()


def test_a_bar_has_a_name_and_a_rate(monkeypatch) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setenv("TERM", "xterm")
    line = drawn(monkeypatch, terminal=True)
    assert "Encoding documents" in line
    assert "2 texts, " in line


def test_no_bar_where_nobody_looks(monkeypatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")  # as CI systems set it
    assert drawn(monkeypatch, terminal=False) == ""
    assert drawn(monkeypatch, terminal=True, shown=False) == ""
