"""Rows of a corpus, one after the other: files, folders, globs, standard input, hub datasets. Nothing is held."""

from __future__ import annotations

import glob
import os
import re
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from evenspan.corpus.compression import standard_input
from evenspan.corpus.documents import Place, Reading, Row
from evenspan.corpus.formats import FORMATS, PLAIN_TEXT, READERS, file_format
from evenspan.errors import require_extra

STDIN = "-"
HUB = "hf:"
INDEX_MANIFEST = "_manifest.sqlite"  # what an index has in its folder
_HIDDEN = re.compile("(^|/)[._]")
_ABOUT = ("README", "LICENSE", "LICENCE", "CHANGELOG", "NOTICE")  # files beside the data that are no documents


@dataclass(frozen=True)
class Source(Reading):
    """A corpus; `read` may be called once for standard input and iterators, and as often as wanted for the rest.

    Args:
        location: a file, a folder, a glob, `-`, `hf:OWNER/NAME[:CONFIG[:SPLIT]]`, or rows as mappings.
        format: jsonl, csv, tsv, parquet or text, where the name of a file does not say so.
    """

    location: str | os.PathLike[str] | Iterable[Mapping[str, Any]]
    format: str | None = None

    def __post_init__(self) -> None:
        if self.format is not None and self.format not in READERS:
            raise ValueError(f"Unknown format {self.format!r}. Available: {', '.join(FORMATS)}.")

    @property
    def name(self) -> str:
        """What it is called in messages."""
        return os.fspath(self.location) if isinstance(self.location, (str, os.PathLike)) else "rows"

    def size(self) -> int | None:
        """How many bytes there are to read, None if nobody knows."""
        files = self._files()
        return None if files is None else sum(path.stat().st_size for _, path, _ in files)

    def reads(self, path: Path) -> bool:
        """Whether a file is one of the source's."""
        return any(path.resolve() == file.resolve() for _, file, _ in self._files() or ())

    def read(self) -> Iterator[Row]:
        """Every row, good or bad, in the same order each time."""
        for _, rows in self.parts():
            yield from rows

    def parts(self) -> Iterator[tuple[str, Iterator[Row]]]:
        """The name and the rows of each file, one after the other; what is no file is one part."""
        files = self._files()
        if files is None:
            yield self.name, self._read_other()
            return
        done = 0
        for name, path, kind in files:
            yield name, self._read_file(name, path, kind, done)
            done += path.stat().st_size

    def _read_file(self, name: str, path: Path, kind: str, before: int) -> Iterator[Row]:
        with path.open("rb") as file:
            yield from self._rows(file, name, kind, before)

    def _rows(self, file: IO[bytes], name: str, kind: str, before: int = 0) -> Iterator[Row]:
        line = 0
        try:
            for row in READERS[kind](file, name, self):
                line = row.place.line
                yield Row(row.place, row.fields, row.problem, before + (row.position or _position(file)))
        except (EOFError, OSError, zlib.error) as error:  # cut off, or no archive at all
            raise OSError(f"{name}, after line {line}: cannot read on: {error}") from error

    def _read_other(self) -> Iterator[Row]:
        if self.location == STDIN:
            yield from self._rows(standard_input(), "stdin", self.format or "jsonl")
            return
        rows: Any = _hub_rows(self.location) if isinstance(self.location, str) else self.location
        for number, fields in enumerate(rows, start=1):
            usable = isinstance(fields, Mapping)
            problem = None if usable else f"a {type(fields).__name__}, not a mapping of fields"
            yield Row(Place(self.name, number), fields if usable else None, problem)

    def _files(self) -> list[tuple[str, Path, str]] | None:
        """Name, path and format of each file, None for sources that are no files."""
        if self.location == STDIN or not isinstance(self.location, (str, os.PathLike)) or self.name.startswith(HUB):
            return None
        text, path = self.name, Path(self.name)
        if path.is_dir():
            # An index was made of what lies here, and is no source.
            indexes = {manifest.parent for manifest in path.rglob(INDEX_MANIFEST)}
            entries = [(entry.relative_to(path).as_posix(), entry) for entry in sorted(path.rglob("*"))]
            visible = [(name, entry) for name, entry in entries if entry.is_file() and not _HIDDEN.search(name)]
            return self._of_folder([file for file in visible if indexes.isdisjoint(file[1].parents)])
        if path.exists():  # also pipes, which are no plain files
            kind = self.format or file_format(path)
            if kind is None:
                known = ", ".join(FORMATS)
                raise ValueError(f"The extension of {path} does not show its format: add a format, one of {known}.")
            return [(text, path, kind)]
        matches = sorted(Path(match) for match in glob.glob(text, recursive=True) if Path(match).is_file())
        if not matches:
            raise FileNotFoundError(f"There is no file or folder {text!r}, and no file matches this pattern.")
        return self._of_folder([(str(match), match) for match in matches])

    def _of_folder(self, files: list[tuple[str, Path]]) -> list[tuple[str, Path, str]]:
        if self.format is not None:
            chosen = [(name, path) for name, path in files if file_format(path) == self.format] or files
            return [(name, path, self.format) for name, path in chosen]
        listed = [(name, path, kind) for name, path in files if (kind := file_format(path)) is not None]
        listed = [file for file in listed if not file[1].name.upper().startswith(_ABOUT)] or listed
        parts = {file[1].name.partition(".")[0] for file in listed}
        if {"corpus", "queries"} <= parts:  # a benchmark in BEIR layout: its queries and judgements are no documents
            listed = [file for file in listed if file[1].name.partition(".")[0] == "corpus"]
        tables = [name for name, _, kind in listed if kind != PLAIN_TEXT]
        texts = [name for name, _, kind in listed if kind == PLAIN_TEXT]
        if tables and texts:
            raise ValueError(
                f"{self.name} contains both tables ({tables[0]}, …) and plain texts ({texts[0]}, …): say with a format or a "
                "pattern which of them are the documents."
            )
        if not listed:
            raise FileNotFoundError(
                f"{self.name} contains no readable file: their names end in .jsonl, .csv, .tsv, .parquet, .txt or .md, "
                "also with .gz or .zst; for other names say which format it is."
            )
        return listed


def _position(file: IO[bytes]) -> int:
    try:
        return file.tell()
    except (OSError, ValueError):  # pipes
        return 0


def _hub_rows(location: str) -> Any:
    require_extra("index", "A dataset on the hub", "datasets")
    from datasets import load_dataset

    name, _, rest = location.removeprefix(HUB).partition(":")
    if not name:
        raise ValueError(f"{location!r} does not name a dataset: write hf:OWNER/NAME[:CONFIG[:SPLIT]].")
    config, _, split = rest.partition(":")
    return load_dataset(name, config or None, split=split or "train", streaming=True)
