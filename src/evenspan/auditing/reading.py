"""Read documents from files, with names, and count what is no document."""

from __future__ import annotations

import csv
import json
import random
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

_ENDINGS = (".jsonl", ".csv", ".parquet", ".txt")
_NAMES = ("_id", "id", "name", "title")


@dataclass
class Texts:
    """Documents with their names, how many there were to draw from, and how many rows were left out, for each reason."""

    names: list[str] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    found: int = 0
    left_out: Counter[str] = field(default_factory=Counter)

    def in_words(self) -> str:
        """What was left out, if anything."""
        if not self.left_out:
            return ""
        total = sum(self.left_out.values())
        reasons = ", ".join(f"{count} {reason}" for reason, count in self.left_out.most_common())
        return f"{total} of {total + self.found} rows were left out: {reasons}."


def read_texts(path: str | Path, column: str | None = None, sample: int | None = None, seed: int = 42) -> Texts:
    """Documents from a .jsonl, .csv or .parquet file, a .txt file (a document each), or a folder of such files.

    Args:
        path: the file or folder.
        column: the column or key of the text; by default `text`, or the only one there is.
        sample: how many documents to keep, drawn at random while reading; None for all.
        seed: of the sample.

    Rows that are empty, no text or in another encoding than UTF-8, and files of a folder that cannot be read, are counted
    and left out.
    """
    source = Path(path)
    if not source.exists():
        raise FileNotFoundError(f"There is no file or folder {str(path)!r}.")
    if source.is_file() and source.suffix.lower() not in _ENDINGS:
        raise ValueError(f"{source.name} is of no known kind: name a {', '.join(_ENDINGS)} file, or a folder of them.")
    files = [source]
    if source.is_dir():
        files = sorted(one for one in source.rglob("*") if one.suffix.lower() in _ENDINGS and one.is_file())
    if not files:
        raise ValueError(f"There is no {', '.join(_ENDINGS)} file in {str(path)!r}.")
    found, kept, draw = Texts(), _Sample(sample), random.Random(seed)  # noqa: S311
    failures: list[ValueError] = []
    for file in files:
        before = file.name if source.is_file() else file.relative_to(source).as_posix()
        try:
            for place, text in _rows(file, column):
                reason = _wrong(text)
                if reason is not None:
                    found.left_out[reason] += 1
                else:
                    found.found += 1
                    kept.add(_safe(f"{before}:{place}" if place else before), str(text), draw)
        except (OSError, ValueError) as error:
            failures.append(ValueError(str(error) if file.name in str(error) else f"{file.name}: {error}"))
            found.left_out["in files that cannot be read"] += 1
    if failures and (source.is_file() or not found.found):  # one bad file does not keep the others
        raise failures[0]
    if not found.found:
        raise ValueError(f"There is no document in {str(path)!r}. {found.in_words()}".rstrip())
    found.names, found.texts = kept.in_order()
    return found


class _Sample:
    """The first documents, then each later one in place of another with the chance that all have to stay."""

    def __init__(self, size: int | None) -> None:
        self.size, self.seen = size, 0
        self.documents: list[tuple[int, str, str]] = []

    def add(self, name: str, text: str, draw: random.Random) -> None:
        self.seen += 1
        if self.size is None or len(self.documents) < self.size:
            self.documents.append((self.seen, name, text))
        elif (place := draw.randrange(self.seen)) < self.size:
            self.documents[place] = (self.seen, name, text)

    def in_order(self) -> tuple[list[str], list[str]]:
        ordered = sorted(self.documents)
        return [name for _, name, _ in ordered], [text for _, _, text in ordered]


@dataclass(frozen=True)
class _Bad:
    reason: str


def _wrong(text: object) -> str | None:
    """Why something is no document, None if it is one."""
    if isinstance(text, _Bad):
        return text.reason
    if not isinstance(text, str):
        return "not text"
    if not text.strip():
        return "empty"
    return "not UTF-8" if text != _safe(text) else None


def _safe(text: str) -> str:
    """A string without halves of surrogate pairs, which no file can hold."""
    return text.encode("utf-8", "replace").decode("utf-8")


def _rows(file: Path, column: str | None) -> Iterator[tuple[str, object]]:
    """The place and text of each row of a file, or what is wrong with it."""
    kind = file.suffix.lower()
    if kind == ".txt":
        try:
            yield "", file.read_bytes().decode("utf-8-sig")
        except UnicodeDecodeError:
            yield "", _Bad("not UTF-8")
    elif kind == ".jsonl":
        yield from _json_rows(file, column)
    elif kind == ".csv":
        yield from _csv_rows(file, column)
    else:
        yield from _parquet_rows(file, column)


def _json_rows(file: Path, column: str | None) -> Iterator[tuple[str, object]]:
    keys, found = dict[str, None](), False
    with file.open("rb") as lines:
        for number, line in enumerate(lines, start=1):
            if not line.strip():
                continue
            try:
                row = json.loads(line.decode("utf-8-sig" if number == 1 else "utf-8"))
            except UnicodeDecodeError:
                yield str(number), _Bad("not UTF-8")
                continue
            except (ValueError, RecursionError):
                yield str(number), _Bad("not JSON")
                continue
            if isinstance(row, str):
                found = True
                yield str(number), row
            elif not isinstance(row, dict):
                yield str(number), _Bad("not a JSON object")
            else:
                keys |= dict.fromkeys(map(str, row))
                alone = column is None and len(row) == 1 and not row.keys() & set(_NAMES)
                chosen = next(iter(row)) if alone else column or "text"
                found = found or chosen in row
                yield _place(row, number), row[chosen] if chosen in row else _Bad(f"without {chosen!r}")
    if keys and not found:  # no row at all has it: that is no matter of bad rows
        raise _no_field(file, column or "text", keys)


def _csv_rows(file: Path, column: str | None) -> Iterator[tuple[str, object]]:
    csv.field_size_limit(min(sys.maxsize, 2**31 - 1))
    with file.open(encoding="utf-8-sig", errors="surrogateescape", newline="") as lines:
        head = lines.readline()
        lines.seek(0)
        separator = max(",;\t|", key=head.count)
        rows = csv.DictReader(lines, delimiter=separator, restkey="", strict=True)
        chosen = _column(list(rows.fieldnames or ()), column, file)
        try:
            for row in rows:
                surplus = _Bad("with more cells than columns")
                yield _place(row, rows.line_num), surplus if row.get("") else row.get(chosen)
        except csv.Error:  # a quote that is never closed: where the next row begins is not known
            yield "", _Bad("with broken quotes, and all behind it")


def _parquet_rows(file: Path, column: str | None) -> Iterator[tuple[str, object]]:
    try:
        import pyarrow
        import pyarrow.parquet as parquet
    except ImportError as error:
        raise ImportError("Parquet files need pyarrow: pip install 'evenspan[eval]'.") from error
    table = parquet.ParquetFile(file)
    columns = table.schema_arrow.names
    chosen = _column(columns, column, file)
    wanted = [chosen, *(name for name in _NAMES if name in columns and name != chosen)]
    number = 0
    for batch in table.iter_batches(batch_size=256, columns=wanted):
        texts = batch.column(chosen)
        if pyarrow.types.is_dictionary(texts.type):
            texts = texts.dictionary_decode()
        if pyarrow.types.is_string(texts.type) or pyarrow.types.is_large_string(texts.type):
            texts = texts.cast(pyarrow.large_binary())  # one text in another encoding is no reason to lose the file
        others = batch.drop_columns([chosen]).to_pylist() if len(wanted) > 1 else [{}] * batch.num_rows
        for text, row in zip(texts.to_pylist(), others, strict=True):
            number += 1
            if isinstance(text, bytes):
                try:
                    text = text.decode("utf-8")
                except UnicodeDecodeError:
                    text = _Bad("not UTF-8")
            yield _place(row, number), text


def _column(columns: list[str], wanted: str | None, file: Path) -> str:
    """Which column the text is in."""
    if wanted is None and "text" not in columns and len(columns) == 1:
        return columns[0]
    name = wanted or "text"
    if name not in columns:
        raise _no_field(file, name, columns)
    return name


def _no_field(file: Path, name: str, there: Iterable[str]) -> ValueError:
    fields = ", ".join(map(repr, there)) or "none"
    return ValueError(f"{file.name} has no field {name!r}: choose with --field, the fields are {fields}.")


def _place(row: dict[str, object], number: int) -> str:
    for name in _NAMES:
        value = row.get(name)
        if isinstance(value, (str, int)) and str(value).strip():
            return str(value)
    return str(number)
