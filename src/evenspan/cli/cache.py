"""`evenspan cache`: the vectors that evaluations keep, shown and cleared."""

from __future__ import annotations

import json
import re
import shutil
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from evenspan.cli.display import Display
from evenspan.cli.options import CacheFolder, default_cache
from evenspan.cli.parsing import BadOptionError, number

_ENTRY, _PART = re.compile(r"[0-9a-f]{32}"), re.compile(r"[0-9a-f]{16}")
_DAY = 86_400
_SETTING = "setting.json"

_Clear = Annotated[bool, typer.Option("--clear", help="Delete the entries that would be shown.")]
_OlderThan = Annotated[int | None, number("--older-than", "Only entries that nothing was added to for N days.", 0)]
_Yes = Annotated[bool, typer.Option("--yes", "-y", help="Clear without asking.")]


@dataclass(frozen=True)
class Entry:
    """The vectors of one model under one method."""

    folder: Path
    model: str
    method: str
    role: str
    size: int
    changed: float

    @classmethod
    def read(cls, folder: Path) -> Entry:
        """What a folder of the cache holds."""
        try:
            setting: Any = json.loads((folder / _SETTING).read_text(encoding="utf-8"))
            architecture = (setting["config"].get("architectures") or ["a model"])[0]
            names = f"{architecture} {setting['weights'][:8]}", str(setting["method"]), str(setting["role"])
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            names = "unknown", "unknown", "unknown"
        files = [path.stat() for path in folder.rglob("*") if path.is_file()]
        changed = max((file.st_mtime for file in files), default=folder.stat().st_mtime)
        return cls(folder, *names, sum(file.st_size for file in files), changed)

    @property
    def date(self) -> str:
        """When something was last added."""
        return time.strftime("%Y-%m-%d", time.localtime(self.changed))


def cache(
    *,
    folder: CacheFolder = None,
    clear: _Clear = False,
    older_than: _OlderThan = None,
    yes: _Yes = False,
    display: Display,
) -> None:
    """Show and clear the vectors that evaluations keep.

    An entry is a model under a method: the documents or queries that were encoded, and when. What is cleared is encoded again
    when it is needed.
    """
    place = folder or default_cache()
    if folder is not None and not folder.is_dir():
        raise BadOptionError(f"--cache: there is no folder {folder}.")
    entries = _entries(place)
    if older_than is not None:
        entries = [entry for entry in entries if entry.changed < time.time() - older_than * _DAY]
    size = sum(entry.size for entry in entries)
    what = f"{len(entries):,} {'entry' if len(entries) == 1 else 'entries'}, {_bytes(size)}"
    values = {"folder": str(place), "size": size, "cleared": clear, "entries": [_values(entry) for entry in entries]}
    if not clear:
        rows = [["model", "method", "of", "size", "changed"]]
        rows += [[entry.model, entry.method, entry.role, _bytes(entry.size), entry.date] for entry in entries]
        table = "\n".join(f"| {' | '.join(row)} |" for row in (rows[0], ["---"] * 5, *rows[1:]))
        text = "\n".join("  ".join(row) for row in _padded(rows)) + "\n" if entries else ""
        display.show(f"{text}{place}: {what}", values, f"{table}\n\n{place}: {what}" if entries else None)
        return
    if entries and not yes:
        if not sys.stdin.isatty():
            raise BadOptionError(f"--clear would delete {what} of {place}: say so with --yes.")
        if not typer.confirm(f"Delete {what} of {place}?", err=True):
            raise typer.Exit(1)
    for entry in entries:
        shutil.rmtree(entry.folder)
    display.show(f"{place}: {what} cleared", values)


def _entries(place: Path) -> list[Entry]:
    """The entries of a cache, the newest first; what is none, nobody deletes."""
    if not place.is_dir():
        return []
    folders = [path for path in place.iterdir() if path.is_dir() and _ENTRY.fullmatch(path.name)]
    ours = [
        path
        for path in folders
        if all(child.name.startswith(_SETTING) or _PART.fullmatch(child.name) for child in path.iterdir())
    ]
    return sorted(map(Entry.read, ours), key=lambda entry: -entry.changed)


def _values(entry: Entry) -> dict[str, Any]:
    return {**vars(entry), "folder": str(entry.folder), "changed": entry.date}


def _padded(rows: list[list[str]]) -> list[list[str]]:
    widths = [max(len(row[place]) for row in rows) for place in range(len(rows[0]))]
    return [[cell.ljust(width) for cell, width in zip(row, widths, strict=True)] for row in rows]


def _bytes(size: float) -> str:
    for unit in ("bytes", "kB", "MB"):
        if size < 1000:
            return f"{size:,.0f} {unit}"
        size /= 1000
    return f"{size:,.1f} GB"
