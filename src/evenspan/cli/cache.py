"""`evenspan cache`: the vectors that evaluations keep, shown and cleared."""

import json
import math
import re
import shutil
import sys
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from evenspan.cli.options import CACHE, default_cache
from evenspan.cli.output import Display
from evenspan.cli.parsing import BadOptionError, number, option, present_folder
from evenspan.formatting import markdown_table

_ENTRY, _PART = re.compile(r"[0-9a-f]{32}"), re.compile(r"[0-9a-f]{16}")
_SETTING = "setting.json"


def cache(
    *,
    folder: Annotated[Path | None, option(CACHE, "DIR", present_folder, "--cache")] = None,
    clear: Annotated[bool, typer.Option("--clear", help="Delete the entries instead of listing them.")] = False,
    older_than: Annotated[int | None, number("Only entries unchanged for N days.", 0)] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
    display: Display,
) -> None:
    """Show or clear the vectors that evaluations keep.

    An entry holds the vectors of documents or queries from one model and method. Cleared entries are encoded again when
    needed.
    """
    from rich.filesize import decimal

    place = folder or default_cache()
    newest = math.inf if older_than is None else time.time() - older_than * 86_400
    entries = [entry for changed, entry in _entries(place) if changed < newest]
    size = sum(entry["size"] for entry in entries)
    summary = f"{len(entries):,} {'entry' if len(entries) == 1 else 'entries'}, {decimal(size)}"
    values = {"folder": str(place), "size": size, "cleared": clear, "entries": entries}
    if not clear:
        rows = [["model", "method", "of", "size", "changed"]]
        rows += [
            [entry["model"], entry["method"], entry["role"], decimal(entry["size"]), entry["changed"]]
            for entry in entries
        ]
        lines, markdown = "\n".join(map("\t".join, rows)), markdown_table(rows, texts=range(5))
        display.show(f"{lines}\n{place}: {summary}", values, f"{markdown}\n\n{place}: {summary}")
        return
    if entries and not yes:
        if not sys.stdin.isatty():
            raise BadOptionError(f"--clear would delete {summary} of {place}. Repeat with --yes to confirm.")
        if not typer.confirm(f"Delete {summary} of {place}?", err=True):
            raise typer.Exit(1)
    for entry in entries:
        shutil.rmtree(entry["folder"])
    display.show(f"{place}: {summary} cleared", values)


def _entries(place: Path) -> list[tuple[float, dict[str, Any]]]:
    """When an entry of a cache was changed, and what it holds, the newest first; what is none, nobody deletes."""
    entries = []
    for folder in place.glob("*/"):
        parts = [child.name for child in folder.iterdir() if not child.name.startswith(_SETTING)]
        if not (_ENTRY.fullmatch(folder.name) and all(map(_PART.fullmatch, parts))):
            continue
        files = [path.stat() for path in folder.rglob("*") if path.is_file()]
        changed = max((file.st_mtime for file in files), default=folder.stat().st_mtime)
        size, date = sum(file.st_size for file in files), time.strftime("%Y-%m-%d", time.localtime(changed))
        entries.append((changed, {"folder": str(folder), **_names(folder), "size": size, "changed": date}))
    return sorted(entries, key=lambda entry: -entry[0])


def _names(folder: Path) -> dict[str, str]:
    """Whose vectors a folder holds; an entry that is damaged does not say."""
    try:
        setting: Any = json.loads((folder / _SETTING).read_text(encoding="utf-8"))
        architecture = (setting["config"].get("architectures") or ["a model"])[0]
        model = f"{architecture} {setting['weights'][:8]}"
        return {"model": model, "method": str(setting["method"]), "role": str(setting["role"])}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return dict.fromkeys(("model", "method", "role"), "unknown")
