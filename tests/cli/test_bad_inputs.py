"""Every bad input is refused in a line, with the right exit code, and leaves nothing behind."""

from __future__ import annotations

import io
import re
import shlex
import sys
from pathlib import Path

import pytest
from cli.bad_inputs import CASES, COMMANDS

from evenspan.cli import main

# Words of Python, which people at a command line need not know.
PYTHON = re.compile(
    r"Traceback|\bNone\b|NoneType|\bTrue\b|\bFalse\b|(Key|Type|Attribute|Index|Assertion|Unicode\w+|Overflow)Error|<class "
    r"|object at 0x|\bdict\b|\b(max_rejects|batch_size|max_chars|batch_tokens|id_field|source_format|keep_text)\b"
    r"|\b(model|replace|engine|table|address|workers)="
)


def _parameters() -> list[object]:
    return [
        pytest.param(line, status, part, id=f"{number}: {line[:60]!a}")
        for number, (line, status, part) in enumerate(CASES)
    ]


def test_there_are_enough_of_them_for_every_command() -> None:
    assert len(CASES) >= 300
    assert len({line for line, *_ in CASES}) == len(CASES), "one is there twice"
    first = [shlex.split(_expanded(line))[:1] for line, *_ in CASES]
    assert all(first.count([name.lower()]) >= 10 for name in COMMANDS)


@pytest.mark.parametrize(("line", "status", "part"), _parameters())
def test_bad_input(line, status, part, materials, tmp_path, monkeypatch, capsys) -> None:
    work, caches = tmp_path / "work", tmp_path / "caches"
    work.mkdir()
    monkeypatch.chdir(work)
    monkeypatch.setenv("XDG_CACHE_HOME", str(caches))
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"")))
    arguments = [argument.replace("@/", f"{materials}/") for argument in shlex.split(_expanded(line))]
    inputs = [materials / name for name in re.findall(r"@/([\w.]+)", _expanded(line))]
    before = _state(inputs)
    assert main(arguments) == status
    printed = capsys.readouterr()
    said = printed.err.strip()
    assert printed.out == ""
    assert said.startswith("evenspan: ")
    assert part in said
    listed = "was made with other settings" in said or "There is nothing to report" in said
    assert listed or len(said.splitlines()) == 1
    assert len(said) < 1500, "long values are cut"
    assert not PYTHON.search(said), PYTHON.search(said)
    assert sorted(work.iterdir()) == [], "nothing is left behind"
    assert not (caches / "evenspan").exists()
    assert _state(inputs) == before, "a command that failed has changed its input"


def _expanded(line: str) -> str:
    """A command in capitals stands for one that would work, were it not for what follows."""
    name, _, rest = line.partition(" ")
    return f"{COMMANDS.get(name, name)} {rest}".strip()


def _state(paths: list[Path]) -> list[tuple[str, int]]:
    everything = [path for given in paths for path in (given, *given.rglob("*"))]
    return sorted((str(path), path.stat().st_mtime_ns) for path in everything)
