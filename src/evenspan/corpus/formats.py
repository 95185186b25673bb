"""One reader for each file format: from an open file to rows with line numbers."""

from __future__ import annotations

import functools
import io
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Protocol

from evenspan.corpus.compression import COMPRESSED, decompressed
from evenspan.corpus.csv_rows import read_csv
from evenspan.corpus.documents import Place, Row
from evenspan.errors import require_extra

PLAIN_TEXT = "text"
LINES = "lines"  # for benchmarks; no format of documents
_SUFFIXES = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
    ".csv": "csv",
    ".tsv": "tsv",
    ".parquet": "parquet",
    ".txt": PLAIN_TEXT,
    ".md": PLAIN_TEXT,
}
_PARQUET_ROWS = 256


class Reading(Protocol):
    """What a reader must know: fields, the longest text, and which other fields are wanted (None: all)."""

    @property
    def text_field(self) -> str: ...  # noqa: D102
    @property
    def id_field(self) -> str: ...  # noqa: D102
    @property
    def max_chars(self) -> int: ...  # noqa: D102
    @property
    def wanted(self) -> tuple[str, ...] | None: ...  # noqa: D102


Reader = Callable[[IO[bytes], str, Reading], Iterator[Row]]


def file_format(path: Path) -> str | None:
    """What the name of a file says about its format."""
    suffixes = [suffix.lower() for suffix in path.suffixes]
    if suffixes and suffixes[-1] in COMPRESSED:
        suffixes.pop()
    return _SUFFIXES.get(suffixes[-1]) if suffixes else None


def _read_lines(file: IO[bytes], name: str, source: Reading) -> Iterator[Row]:
    """Every line that is not blank, as the text of its row."""
    for number, line in _lines(file, name, source.max_chars):
        place, position = Place(name, number), _position(file)
        if line is None:
            yield Row(place, None, f"text longer than {source.max_chars:,} characters", position)
            continue
        try:
            text = line.decode("utf-8-sig" if number == 1 else "utf-8")
        except UnicodeDecodeError:
            yield Row(place, None, "invalid UTF-8", position)
            continue
        if text.strip():
            yield Row(place, {source.text_field: text.rstrip("\r\n")}, None, position)


def _read_jsonl(file: IO[bytes], name: str, source: Reading) -> Iterator[Row]:
    for row in _read_lines(file, name, source):
        if row.fields is None:
            yield row
            continue
        try:
            fields = json.loads(row.fields[source.text_field])
        except (ValueError, RecursionError):
            yield Row(row.place, None, "no valid JSON", row.position)
            continue
        if isinstance(fields, str):
            fields = {source.text_field: fields}
        if isinstance(fields, dict):
            yield Row(row.place, fields, None, row.position)
        else:
            yield Row(row.place, None, "not a JSON object", row.position)


def _lines(file: IO[bytes], name: str, max_chars: int) -> Iterator[tuple[int, bytes | None]]:
    """Number and content of every line; None for one that is too long to be worth keeping."""
    limit = 6 * max_chars + (1 << 20)  # \uXXXX takes six bytes; other fields need room too
    content, number = decompressed(file, name), 0
    while line := content.readline(limit):
        number += 1
        if len(line) < limit or line.endswith(b"\n"):
            yield number, line
            continue
        while rest := content.readline(limit):
            if rest.endswith(b"\n"):
                break
        yield number, None


def _read_csv(file: IO[bytes], name: str, source: Reading, separators: str | None = None) -> Iterator[Row]:
    content = decompressed(file, name)
    given = {} if separators is None else {"separators": separators}
    for place, fields, problem in read_csv(content, name, source.max_chars, source.text_field, **given):
        yield Row(place, fields, problem, _position(file))


def _read_parquet(file: IO[bytes], name: str, source: Reading) -> Iterator[Row]:
    require_extra("index", "A Parquet file", "pyarrow")
    import pyarrow.parquet as parquet

    size = file.seek(0, io.SEEK_END)
    file.seek(0)
    try:
        opened, number = parquet.ParquetFile(file), 0
    except (ValueError, OSError) as error:
        raise ValueError(f"{name} is no Parquet file: {error}") from error
    rows, there = max(1, opened.metadata.num_rows), opened.schema_arrow.names
    wanted = None
    if source.wanted is not None and source.text_field in there:
        wanted = [column for column in there if column in (source.text_field, *source.wanted)]
    for batch in opened.iter_batches(batch_size=_PARQUET_ROWS, columns=wanted):
        for index in range(batch.num_rows):
            number += 1
            place, position = Place(name, number), size * number // rows
            try:
                fields = {field: batch.column(at)[index].as_py() for at, field in enumerate(batch.schema.names)}
            except UnicodeDecodeError:
                yield Row(place, None, "invalid UTF-8", position)
            except (ValueError, OverflowError) as error:  # such as a date that Python does not have
                yield Row(place, None, f"a value that cannot be read: {error}", position)
            else:
                yield Row(place, fields, None, position)


def _read_text(file: IO[bytes], name: str, source: Reading) -> Iterator[Row]:
    max_chars = source.max_chars
    limit = 4 * max_chars + 3
    content = decompressed(file, name).read(limit + 1)
    place = Place(name, 1)
    if len(content) > limit:
        yield Row(place, None, f"text longer than {max_chars:,} characters", len(content))
        return
    try:
        yield Row(place, {source.id_field: name, source.text_field: content.decode("utf-8-sig")}, None, len(content))
    except UnicodeDecodeError:
        yield Row(place, None, "invalid UTF-8", len(content))


def _position(file: IO[bytes]) -> int:
    try:
        return file.tell()
    except (OSError, ValueError):  # pipes
        return 0


READERS: dict[str, Reader] = {
    LINES: _read_lines,
    "jsonl": _read_jsonl,
    "csv": _read_csv,
    "tsv": functools.partial(_read_csv, separators="\t"),
    "parquet": _read_parquet,
    PLAIN_TEXT: _read_text,
}
FORMATS = tuple(kind for kind in READERS if kind != LINES)
