"""Reading benchmark files: errors name the file and the line."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from evenspan.evaluation.benchmark import POSITIONS

# Older copies of the data sets call the outer groups otherwise.
_FORMER_NAMES = {"before": "beginning", "after": "end", "begin": "beginning", "mid": "middle"}


class BenchmarkError(ValueError):
    """A benchmark's files do not fit together; the message names file and line."""

    def __init__(self, path: Path, line: int | None, problem: str) -> None:
        super().__init__(f"{path}{'' if line is None else f', line {line}'}: {problem}")


def require(path: Path) -> Path:
    """The path, if there is such a file."""
    if not path.is_file():
        there = (
            ", ".join(sorted(entry.name for entry in path.parent.iterdir())) if path.parent.is_dir() else "no folder"
        )
        raise BenchmarkError(path, None, f"there is no such file (the folder holds: {there})")
    return path


def read_jsonl(path: Path, *fields: str) -> Iterator[tuple[int, dict[str, Any]]]:
    """Line number and object of every line, each with the given text fields."""
    for number, line in _lines(path):
        try:
            entry = json.loads(line)
        except json.JSONDecodeError as error:
            raise BenchmarkError(path, number, f"no valid JSON: {error.msg}") from None
        if not isinstance(entry, dict):
            raise BenchmarkError(path, number, "not a JSON object")
        if isinstance(entry.get("_id"), int):
            entry["_id"] = str(entry["_id"])
        for field in fields:
            if not isinstance(entry.get(field), str):
                found = f"has {entry[field]!r}" if field in entry else f"has {sorted(entry)}"
                raise BenchmarkError(path, number, f"needs a text field {field!r}, {found}")
        yield number, entry


def read_qrels(path: Path) -> Iterator[tuple[int, str, str, int]]:
    """Line number, query, document and score of a tab-separated qrels file, with or without a header."""
    for number, line in _lines(path):
        cells = line.split("\t")
        if len(cells) != 3:
            raise BenchmarkError(
                path, number, f"needs query-id, corpus-id and score between tabs, has {len(cells)} cells"
            )
        try:
            yield number, cells[0], cells[1], int(cells[2])
        except ValueError:
            if number > 1:  # the first line may be the header
                raise BenchmarkError(path, number, f"score {cells[2]!r} is no whole number") from None


def read_tags(span_class: Any) -> tuple[str, ...] | None:
    """The position groups that a `span_class` names, one or a list; None for anything else."""
    tags = [span_class] if isinstance(span_class, str) else span_class
    if not isinstance(tags, (list, tuple)):
        return None
    named = {_FORMER_NAMES.get(tag, tag) for tag in tags}
    return tuple(name for name in POSITIONS if name in named) if named <= set(POSITIONS) else None


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    """Number and content of every line that is not blank."""
    with require(path).open("rb") as file:
        for number, line in enumerate(file, start=1):
            try:
                text = line.decode("utf-8-sig" if number == 1 else "utf-8").rstrip("\r\n")
            except UnicodeDecodeError as error:
                raise BenchmarkError(path, number, f"not UTF-8: {error.reason} at byte {error.start}") from None
            if text.strip():
                yield number, text
