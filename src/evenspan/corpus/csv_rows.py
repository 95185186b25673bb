"""Rows of CSV files: with any usual separator, and beside quotes that are never closed."""

from __future__ import annotations

import csv
import io
import math
from collections import deque
from collections.abc import Iterator
from typing import IO

from evenspan.corpus.documents import Place

_SEPARATORS = ",;\t|"


def read_csv(
    file: IO[bytes], name: str, max_chars: int, text_field: str, separators: str = _SEPARATORS
) -> Iterator[tuple[Place, dict[str, str | None] | None, str | None]]:
    """Place, fields and problem of each row."""
    csv.field_size_limit(max(csv.field_size_limit(), min(6 * max_chars, 2**31 - 1)))
    # Bytes that are no UTF-8 become lone surrogates, by which the rules for rows know them.
    text = io.TextIOWrapper(file, "utf-8-sig", errors="surrogateescape", newline="")
    lines = _Lines(text)
    separator = _separator(lines.first(), text_field, separators)
    reader = csv.reader(lines, delimiter=separator)
    header = next(reader, [])
    if lines.ended and header:
        raise ValueError(f"{name}: a quote in its header is never closed.")
    if any("\ud800" <= letter <= "\udfff" for column in header for letter in column):
        raise ValueError(f"{name} is not in UTF-8.")
    while True:
        lines.row.clear()
        place, problem, cells = Place(name, lines.number + 1), None, []
        try:
            cells = next(reader)
        except StopIteration:
            break
        except csv.Error as error:
            problem = f"no valid CSV: {error}"
        if lines.ended:  # the reader went on to the end to find the other quote
            problem = "no valid CSV: a quote that is never closed"
        if problem is not None:
            lines.take_back()
            reader = csv.reader(lines, delimiter=separator)
        elif len(cells) > len(header):
            problem = "more cells than the header has"
        if problem is not None:
            yield place, None, problem
        elif cells:
            yield place, _fields(header, cells), None
    text.detach()


def _fields(header: list[str], cells: list[str]) -> dict[str, str | None]:
    """The cells by their names; an empty one is a value that is not there."""
    fields: dict[str, str | None] = dict.fromkeys(header)
    fields.update((key, cell) for key, cell in zip(header, cells, strict=False) if cell)
    return fields


def _separator(line: str, text_field: str, separators: str) -> str:
    """That which parts the text from the rest of a header, else that which makes most columns of it."""
    columns: dict[str, list[str]] = {}
    for separator in separators:
        try:
            columns[separator] = next(csv.reader([line], delimiter=separator, strict=True), [])
        except csv.Error:
            continue
    return max(
        columns, key=lambda by: math.inf if text_field in columns[by] else len(columns[by]), default=separators[0]
    )


class _Lines:
    """Lines one by one, of which those of the row that is being read can be taken back."""

    def __init__(self, file: IO[str]) -> None:
        self._file, self._again = file, deque[str]()
        self.number = 0
        self.ended = False
        self.row: list[str] = []

    def first(self) -> str:
        """The first line that is not blank, which will be read again."""
        for line in self:
            if line.strip():
                self._again.append(line)
                self.number -= 1
                return line
        return ""

    def take_back(self) -> None:
        """Read all lines of this row again but its first."""
        self._again.extendleft(reversed(self.row[1:]))
        self.number -= max(0, len(self.row) - 1)
        self.ended = False

    def __iter__(self) -> _Lines:
        return self

    def __next__(self) -> str:
        line = self._again.popleft() if self._again else self._file.readline()
        if not line:
            self.ended = True
            raise StopIteration
        self.number += 1
        self.row.append(line)
        return line
