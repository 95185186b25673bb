"""One reader for each file format: from an open file to rows with line numbers."""

from __future__ import annotations

import csv
import functools
import gzip
import io
import itertools
import json
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

from evenspan.corpus.documents import Place, Row

PLAIN_TEXT = "text"
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
_COMPRESSED = (".gz", ".zst")
_PARQUET_ROWS = 256
_SEPARATORS = ",;\t|"  # that which the header has most of; the first where it has none
Reader = Callable[[IO[bytes], str, int, "tuple[str, str] | None"], Iterator[Row]]


def file_format(path: Path) -> str | None:
    """What the name of a file says about its format."""
    suffixes = [suffix.lower() for suffix in path.suffixes]
    if suffixes and suffixes[-1] in _COMPRESSED:
        suffixes.pop()
    return _SUFFIXES.get(suffixes[-1]) if suffixes else None


def decompressed(file: IO[bytes], name: str) -> IO[bytes]:
    """The content of a file that may be compressed."""
    if name.lower().endswith(".gz"):
        return gzip.open(file, "rb")  # type: ignore[return-value]
    if name.lower().endswith(".zst"):
        import pyarrow

        stream: Any = pyarrow.CompressedInputStream(pyarrow.PythonFile(file, "r"), "zstd")
        return io.BufferedReader(stream)
    return file


def _read_jsonl(file: IO[bytes], name: str, max_chars: int, _: tuple[str, str] | None) -> Iterator[Row]:
    for number, line in _lines(file, name, max_chars):
        place, position = Place(name, number), _position(file)
        if line is None:
            yield Row(place, None, f"text longer than {max_chars:,} characters", position)
            continue
        try:
            text = line.decode("utf-8-sig" if number == 1 else "utf-8")
        except UnicodeDecodeError:
            yield Row(place, None, "invalid UTF-8", position)
            continue
        if not text.strip():
            continue
        try:
            fields = json.loads(text)
        except (ValueError, RecursionError):
            yield Row(place, None, "no valid JSON", position)
            continue
        if isinstance(fields, dict):
            yield Row(place, fields, None, position)
        else:
            yield Row(place, None, "not a JSON object", position)


def _lines(file: IO[bytes], name: str, max_chars: int) -> Iterator[tuple[int, bytes | None]]:
    """Number and content of every line; None for one that is too long to be worth keeping."""
    limit = 6 * max_chars + (1 << 20)  # \uXXXX takes six bytes; other fields need room too
    content, number = decompressed(file, name), 0
    try:
        while line := content.readline(limit):
            number += 1
            if len(line) < limit or line.endswith(b"\n"):
                yield number, line
                continue
            while rest := content.readline(limit):
                if rest.endswith(b"\n"):
                    break
            yield number, None
    except (EOFError, OSError, zlib.error) as error:
        raise OSError(f"{name}, after line {number}: cannot read on: {error}") from error


def _read_csv(
    file: IO[bytes], name: str, max_chars: int, _: tuple[str, str] | None, separators: str = _SEPARATORS
) -> Iterator[Row]:
    csv.field_size_limit(max(csv.field_size_limit(), min(6 * max_chars, 2**31 - 1)))
    # Bytes that are no UTF-8 become lone surrogates, by which the rules for rows know them.
    text = io.TextIOWrapper(decompressed(file, name), "utf-8-sig", errors="surrogateescape", newline="")
    first = text.readline()
    separator = max(separators, key=first.count)
    # Strict: behind a quote that is never closed lenient reading finds one endless cell.
    reader = csv.reader(itertools.chain([first], text), delimiter=separator, strict=True)
    try:
        header = next(reader, [])
    except csv.Error as error:
        raise ValueError(f"{name}: the header is no valid CSV: {error}") from error
    before = reader.line_num
    while True:
        place = Place(name, before + 1)
        try:
            cells = next(reader)
        except StopIteration:
            break
        except csv.Error as error:
            yield Row(place, None, f"no valid CSV: {error}", _position(file))
            before = reader.line_num
            continue
        except (EOFError, OSError, zlib.error) as error:
            raise OSError(f"{name}, after line {before}: cannot read on: {error}") from error
        before = reader.line_num
        if len(cells) > len(header):
            yield Row(place, None, "more cells than the header has", _position(file))
        elif cells:
            # An empty cell is a value that is not there.
            fields = {key: cell or None for key, cell in itertools.zip_longest(header, cells, fillvalue="")}
            yield Row(place, fields, None, _position(file))
    text.detach()


def _read_parquet(file: IO[bytes], name: str, max_chars: int, _: tuple[str, str] | None) -> Iterator[Row]:  # noqa: ARG001
    try:
        import pyarrow.parquet as parquet
    except ImportError as error:
        raise ImportError("Parquet files need pyarrow: pip install 'evenspan[index]'.") from error
    size = file.seek(0, io.SEEK_END)
    file.seek(0)
    try:
        opened, number = parquet.ParquetFile(file), 0
    except (ValueError, OSError) as error:
        raise ValueError(f"{name} is no Parquet file: {error}") from error
    rows = max(1, opened.metadata.num_rows)
    for batch in opened.iter_batches(batch_size=_PARQUET_ROWS):
        for index in range(batch.num_rows):
            number += 1
            place, position = Place(name, number), size * number // rows
            try:
                fields = {field: batch.column(at)[index].as_py() for at, field in enumerate(batch.schema.names)}
            except UnicodeDecodeError:
                yield Row(place, None, "invalid UTF-8", position)
                continue
            yield Row(place, fields, None, position)


def _read_text(file: IO[bytes], name: str, max_chars: int, names: tuple[str, str] | None) -> Iterator[Row]:
    id_field, text_field = names or ("id", "text")
    limit = 4 * max_chars + 3
    content = decompressed(file, name).read(limit + 1)
    place = Place(name, 1)
    if len(content) > limit:
        yield Row(place, None, f"text longer than {max_chars:,} characters", len(content))
        return
    try:
        yield Row(place, {id_field: name, text_field: content.decode("utf-8-sig")}, None, len(content))
    except UnicodeDecodeError:
        yield Row(place, None, "invalid UTF-8", len(content))


def _position(file: IO[bytes]) -> int:
    try:
        return file.tell()
    except (OSError, ValueError):  # pipes
        return 0


READERS: dict[str, Reader] = {
    "jsonl": _read_jsonl,
    "csv": _read_csv,
    "tsv": functools.partial(_read_csv, separators="\t"),
    "parquet": _read_parquet,
    PLAIN_TEXT: _read_text,
}
FORMATS = tuple(READERS)
