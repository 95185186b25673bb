"""Rows of CSV files: with any usual separator, and beside quotes that are never closed."""

from __future__ import annotations

import csv
import io
import math
from collections import deque
from collections.abc import Iterator
from typing import IO

from evenspan.corpus.compression import decompressed
from evenspan.corpus.documents import Place, Reading, Row


def read_csv(file: IO[bytes], name: str, reading: Reading, separators: str = ",;\t|") -> Iterator[Row]:
    """Each row, with the usual separator that fits best."""
    csv.field_size_limit(max(csv.field_size_limit(), min(6 * reading.max_chars, 2**31 - 1)))
    # Bytes that are no UTF-8 become lone surrogates, by which the rules for rows know them.
    text = io.TextIOWrapper(decompressed(file, name), "utf-8-sig", errors="surrogateescape", newline="")
    lines = _Lines(text)
    separator = _separator(lines.first(), reading.text_field, separators)
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
            yield Row(place, None, problem)
        elif cells:
            # An empty cell is a value that is not there, and so is one beyond the end of a short row.
            given = {key: cell for key, cell in zip(header, cells, strict=False) if cell}
            yield Row(place, dict.fromkeys(header) | given)
    text.detach()


def _separator(line: str, text_field: str, separators: str) -> str:
    """That which parts the text from the rest of a header, else that which makes most columns of it."""
    columns: dict[str, list[str]] = {}
    for separator in separators:
        try:
            columns[separator] = next(csv.reader([line], delimiter=separator, strict=True), [])
        except csv.Error:
            continue

    def fitness(separator: str) -> float:
        return math.inf if text_field in columns[separator] else len(columns[separator])

    return max(columns, key=fitness, default=separators[0])


class _Lines:
    """Lines one by one, of which those of the row that is being read can be taken back."""

    def __init__(self, file: IO[str]) -> None:
        self._file, self._again = file, deque[str]()
        self.number, self.ended = 0, False
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
