"""Read documents from files, with names, and count what is no document."""

from __future__ import annotations

import csv
import json
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

_ENDINGS = (".jsonl", ".csv", ".parquet", ".txt")
_NAMES = ("_id", "id", "name", "title")


@dataclass
class Texts:
    """Documents with their names, and how many rows were left out, for each reason."""

    names: list[str] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    left_out: Counter[str] = field(default_factory=Counter)

    def in_words(self) -> str:
        """What was left out, if anything."""
        if not self.left_out:
            return ""
        total = sum(self.left_out.values())
        reasons = ", ".join(f"{count} {reason}" for reason, count in self.left_out.most_common())
        return f"{total} of {total + len(self.texts)} rows were left out: {reasons}."


def read_texts(path: str | Path, column: str | None = None) -> Texts:
    """Documents from a .jsonl, .csv or .parquet file, a .txt file (a document each), or a folder of such files.

    Args:
        path: the file or folder.
        column: the column or key of the text; by default `text`, or the only one there is.

    Rows that are empty, no text or in another encoding than UTF-8 are counted and left out.
    """
    source = Path(path)
    if not source.exists():
        raise FileNotFoundError(f"There is no file or folder {str(path)!r}.")
    files = [source] if source.is_file() else sorted(one for one in source.rglob("*") if one.suffix.lower() in _ENDINGS)
    if source.is_file() and source.suffix.lower() not in _ENDINGS:
        raise ValueError(f"{source.name} is of no known kind: name a {', '.join(_ENDINGS)} file, or a folder of them.")
    if not files:
        raise ValueError(f"There is no {', '.join(_ENDINGS)} file in {str(path)!r}.")
    found = Texts()
    for file in files:
        before = file.name if source.is_file() else file.relative_to(source).as_posix()
        for place, text in _rows(file, column):
            if isinstance(text, _Bad):
                found.left_out[text.reason] += 1
            elif not isinstance(text, str):
                found.left_out["not text"] += 1
            elif not text.strip():
                found.left_out["empty"] += 1
            else:
                found.names.append(f"{before}:{place}" if place else before)
                found.texts.append(text)
    if not found.texts:
        raise ValueError(f"There is no document in {str(path)!r}. {found.in_words()}".rstrip())
    return found


@dataclass(frozen=True)
class _Bad:
    reason: str


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
    chosen, keys, found = column, dict[str, None](), False
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
                yield str(number), row
            elif not isinstance(row, dict):
                yield str(number), _Bad("not a JSON object")
            else:
                keys |= dict.fromkeys(map(str, row))
                if chosen is None and row:  # the first row says what the only field is called
                    chosen = next(iter(row)) if len(row) == 1 else "text"
                found = found or chosen in row
                yield _place(row, number), row[chosen] if chosen in row else _Bad(f"without {chosen or 'text'!r}")
    if keys and not found:  # no row at all has it: that is no matter of bad rows
        raise _no_field(file, chosen or "text", keys)


def _csv_rows(file: Path, column: str | None) -> Iterator[tuple[str, object]]:
    csv.field_size_limit(min(sys.maxsize, 2**31 - 1))
    with file.open(encoding="utf-8-sig", errors="surrogateescape", newline="") as lines:
        rows = csv.DictReader(lines)
        chosen = _column(list(rows.fieldnames or ()), column, file)
        for row in rows:
            text = row.get(chosen)
            escaped = isinstance(text, str) and any("\ud800" <= letter <= "\udfff" for letter in text)
            yield _place(row, rows.line_num), _Bad("not UTF-8") if escaped else text


def _parquet_rows(file: Path, column: str | None) -> Iterator[tuple[str, object]]:
    try:
        import pyarrow.parquet as parquet
    except ImportError as error:
        raise ImportError("Parquet files need pyarrow: pip install 'evenspan[eval]'.") from error
    table = parquet.ParquetFile(file)
    columns = table.schema_arrow.names
    chosen = _column(columns, column, file)
    wanted = [chosen, *(name for name in _NAMES if name in columns and name != chosen)]
    number = 0
    for batch in table.iter_batches(batch_size=256, columns=wanted):
        for row in batch.to_pylist():
            number += 1
            yield _place(row, number), row[chosen]


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
