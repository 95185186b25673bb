"""One reader for each file format: from an open file to rows with line numbers."""

from __future__ import annotations

import functools
import io
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

from evenspan.corpus.compression import COMPRESSED, decompressed
from evenspan.corpus.csv_rows import read_csv
from evenspan.corpus.documents import Place, Reading, Row, too_long
from evenspan.errors import require_extra

PLAIN_TEXT = "text"
LINES = "lines"  # for benchmarks; no format of documents
_SUFFIXES = {f".{name}": name for name in ("jsonl", "csv", "tsv", "parquet")}
_SUFFIXES |= {".ndjson": "jsonl", ".json": "jsonl", ".txt": PLAIN_TEXT, ".md": PLAIN_TEXT}
_PARQUET_ROWS = 256


Reader = Callable[[IO[bytes], str, Reading], Iterator[Row]]


def file_format(path: Path) -> str | None:
    """What the name of a file says about its format."""
    suffixes = [suffix.lower() for suffix in path.suffixes]
    if suffixes and suffixes[-1] in COMPRESSED:
        suffixes.pop()
    return _SUFFIXES.get(suffixes[-1]) if suffixes else None


def _read_lines(file: IO[bytes], name: str, reading: Reading) -> Iterator[Row]:
    """Every line that is not blank, as the text of its row."""
    limit = 6 * reading.max_chars + (1 << 20)  # \uXXXX takes six bytes; other fields need room too
    content, number = decompressed(file, name), 0
    while line := content.readline(limit):
        number += 1
        place = Place(name, number)
        if len(line) >= limit and not line.endswith(b"\n"):
            while (rest := content.readline(limit)) and not rest.endswith(b"\n"):
                pass
            yield Row(place, None, too_long(reading.max_chars))
            continue
        try:
            text = line.decode("utf-8-sig" if number == 1 else "utf-8")
        except UnicodeDecodeError:
            yield Row(place, None, "invalid UTF-8")
            continue
        if text.strip():
            yield Row(place, {reading.text_field: text.rstrip("\r\n")})


def _read_jsonl(file: IO[bytes], name: str, reading: Reading) -> Iterator[Row]:
    for row in _read_lines(file, name, reading):
        if row.fields is None:
            yield row
            continue
        try:
            fields = json.loads(row.fields[reading.text_field])
        except (ValueError, RecursionError):
            yield Row(row.place, None, "no valid JSON")
            continue
        if isinstance(fields, str):
            fields = {reading.text_field: fields}
        yield Row(row.place, fields) if isinstance(fields, dict) else Row(row.place, None, "not a JSON object")


def _read_parquet(file: IO[bytes], name: str, reading: Reading) -> Iterator[Row]:
    require_extra("index", "A Parquet file", "pyarrow")
    import pyarrow.parquet as parquet

    size = file.seek(0, io.SEEK_END)
    file.seek(0)
    try:
        opened, number = parquet.ParquetFile(file), 0
    except (ValueError, OSError) as error:
        raise ValueError(f"{name} is not a Parquet file: {error}") from error
    rows, there = max(1, opened.metadata.num_rows), opened.schema_arrow.names
    wanted = None
    if reading.wanted is not None and reading.text_field in there:
        wanted = [column for column in there if column in (reading.text_field, *reading.wanted)]
    for batch in opened.iter_batches(batch_size=_PARQUET_ROWS, columns=wanted):
        for index in range(batch.num_rows):
            number += 1
            place, position = Place(name, number), max(1, size * number // rows)
            try:
                fields = {field: batch.column(at)[index].as_py() for at, field in enumerate(batch.schema.names)}
            except UnicodeDecodeError:
                yield Row(place, None, "invalid UTF-8", position)
            except (ValueError, OverflowError) as error:  # such as a date that Python does not have
                yield Row(place, None, f"a value that cannot be read: {error}", position)
            else:
                yield Row(place, fields, None, position)


def _read_text(file: IO[bytes], name: str, reading: Reading) -> Iterator[Row]:
    limit = 4 * reading.max_chars + 3
    content, place = decompressed(file, name).read(limit + 1), Place(name, 1)
    if len(content) > limit:
        yield Row(place, None, too_long(reading.max_chars))
        return
    try:
        yield Row(place, {reading.id_field: name, reading.text_field: content.decode("utf-8-sig")})
    except UnicodeDecodeError:
        yield Row(place, None, "invalid UTF-8")


READERS: dict[str, Reader] = {
    LINES: _read_lines,
    "jsonl": _read_jsonl,
    "csv": read_csv,
    "tsv": functools.partial(read_csv, separators="\t"),
    "parquet": _read_parquet,
    PLAIN_TEXT: _read_text,
}
FORMATS = tuple(kind for kind in READERS if kind != LINES)
