"""Reading benchmark files: errors name the file and the line."""

from __future__ import annotations

import sys
from collections.abc import Container, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from evenspan.corpus.compression import COMPRESSED
from evenspan.corpus.formats import LINES
from evenspan.corpus.sources import Source
from evenspan.evaluation.benchmark import POSITIONS

# Older copies of the data sets call the outer groups otherwise.
_FORMER_NAMES = {"before": "beginning", "after": "end", "begin": "beginning", "mid": "middle"}


class BenchmarkError(ValueError):
    """A benchmark's files do not fit together; the message names file and line."""

    def __init__(self, path: Path | str, line: int | None, problem: str) -> None:
        super().__init__(f"{path}{'' if line is None else f', line {line}'}: {problem}")


def find(*paths: Path) -> Path:
    """The first of these files that is there, also where it is compressed."""
    for path in paths:
        for candidate in (path, *(Path(f"{path}{suffix}") for suffix in COMPRESSED)):
            if candidate.is_file():
                return candidate
    folder = paths[-1].parent
    there = ", ".join(sorted(entry.name for entry in folder.iterdir())) if folder.is_dir() else "no folder"
    raise BenchmarkError(paths[-1], None, f"there is no such file (the folder holds: {there})")


def read_entries(path: Path, kind: str) -> Iterator[tuple[int, dict[str, Any]]]:
    """Line number and object of every line, each with a text and an id of its own."""
    seen: set[str] = set()
    for number, entry in _rows(path, "jsonl"):
        if isinstance(entry.get("_id"), int):
            entry["_id"] = str(entry["_id"])
        for field in ("_id", "text"):
            if not isinstance(entry.get(field), str):
                there = f"has {entry[field]!r}" if field in entry else f"has {sorted(entry)}"
                raise BenchmarkError(path, number, f"needs a text field {field!r}, {there}")
        if entry["_id"] in seen:
            raise BenchmarkError(path, number, f"{kind} id {entry['_id']!r} appears a second time")
        seen.add(entry["_id"])
        yield number, entry


def read_relevance(path: Path, corpus: Container[str], asked: Container[str]) -> dict[str, dict[str, int]]:
    """Relevant documents by query out of a tab-separated qrels file, with or without a header; all must be known."""
    relevance: dict[str, dict[str, int]] = {}
    for number, line in _rows(path, LINES):
        wrong = partial(BenchmarkError, path, number)
        cells = line["text"].split("\t")
        if len(cells) != 3:
            raise wrong(f"needs query-id, corpus-id and score between tabs, has {len(cells)} cells")
        query, document = cells[:2]
        try:
            score = int(cells[2])
        except ValueError:
            if number == 1:  # the header
                continue
            raise wrong(f"score {cells[2]!r} is no whole number") from None
        if document not in corpus:
            raise wrong(f"document {document!r} is not in corpus.jsonl")
        if score > 0:
            if query not in asked:
                raise wrong(f"query {query!r} is not in queries.jsonl")
            relevance.setdefault(query, {})[document] = score
    return relevance


def read_tags(path: Path | str, line: int | None, span_class: Any) -> tuple[str, ...]:
    """The position groups that a `span_class` names, one or a list; anything else is an error."""
    tags = span_class if isinstance(span_class, (list, tuple)) else [span_class]
    named = {_FORMER_NAMES.get(tag, tag) for tag in map(str, tags)}
    if not named <= set(POSITIONS):
        raise BenchmarkError(path, line, f"span_class {span_class!r} is none of {', '.join(POSITIONS)}")
    return tuple(name for name in POSITIONS if name in named)


def _rows(path: Path, kind: str) -> Iterator[tuple[int, dict[str, Any]]]:
    """Line number and fields of every row; the first that cannot be read is an error."""
    for row in Source(path, kind, max_chars=sys.maxsize // 8).read():
        if row.fields is None:
            raise BenchmarkError(path, row.place.line, row.problem or "unreadable")
        yield row.place.line, dict(row.fields)
