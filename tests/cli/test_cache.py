"""`evenspan cache`: what is there, and what goes."""

from __future__ import annotations

import io
import json
import os
import sys
import time
from pathlib import Path

import pytest

from evenspan.cli import main


@pytest.fixture
def cache(materials, tmp_path, monkeypatch, capsys) -> Path:
    """The vectors of an evaluation, and a few things that are none."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    line = ["evaluate", str(materials / "model"), "--benchmark", str(materials / "beir"), "--resamples", "0", "-q"]
    assert main(line) == 0
    folder = tmp_path / "evenspan" / "vectors"
    (folder / "mine").mkdir()
    (folder / ("a" * 32)).mkdir()
    (folder / ("a" * 32) / "diary.txt").write_text("not an entry")
    capsys.readouterr()
    return folder


def test_entries_are_shown(cache, capsys) -> None:
    assert main(["cache"]) == 0
    shown = capsys.readouterr().out
    assert shown.splitlines()[0].split() == ["model", "method", "of", "size", "changed"]
    for words in ("XLMRobertaModel ", "soft,strength=0.5,layers=half,basket_size=128", "query", f"{cache}: 3 entries"):
        assert words in shown
    assert main(["cache", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert {(entry["method"][:4], entry["role"]) for entry in listed["entries"]} == {
        ("none", "query"), ("none", "document"), ("soft", "document"),
    }  # fmt: skip
    assert listed["size"] == sum(entry["size"] for entry in listed["entries"]) > 0


def test_a_damaged_entry_is_an_entry(cache, capsys) -> None:
    for setting in cache.glob("*/setting.json"):
        setting.write_text("{")
    assert main(["cache"]) == 0
    assert capsys.readouterr().out.count("unknown") == 9


def test_clearing_asks_first(cache, capsys, monkeypatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    assert main(["cache", "--clear"]) == 2
    assert "Repeat with --yes" in capsys.readouterr().err
    terminal = io.StringIO("n\n")
    terminal.isatty = lambda: True  # type: ignore[method-assign]
    monkeypatch.setattr(sys, "stdin", terminal)
    assert main(["cache", "--clear"]) == 1
    assert len(list(cache.glob("*/setting.json"))) == 3


def test_what_is_no_entry_is_left_alone(cache, capsys) -> None:
    assert main(["cache", "--clear", "--yes"]) == 0
    assert "3 entries" in capsys.readouterr().out
    assert {path.name for path in cache.iterdir()} == {"mine", "a" * 32}
    assert main(["cache", "--clear"]) == 0, "nothing to ask about"
    assert "0 entries" in capsys.readouterr().out


def test_old_entries_only(cache, capsys) -> None:
    old, *_ = cache.glob("*/setting.json")
    for path in (old, *old.parent.rglob("*.npz")):
        os.utime(path, (time.time() - 10 * 86_400,) * 2)
    assert main(["cache", "--older-than", "7", "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["entries"]) == 1
    assert main(["cache", "--clear", "--older-than", "7", "--yes"]) == 0
    assert not old.exists()
    assert len(list(cache.glob("*/setting.json"))) == 2
