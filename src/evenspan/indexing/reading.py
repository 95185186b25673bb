"""The rows of a run and the rules that make documents of them, settled before a model is loaded; and rows that are none."""

from __future__ import annotations

import itertools
import json
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import IO, Any

from evenspan.corpus.documents import LINE_ID, Place, Row, RowRules, kind_of
from evenspan.corpus.sources import Source
from evenspan.indexing.columns import parse_metadata

_ROWS = 1000  # in a chunk
_CHARACTERS = 8_000_000  # likewise
_FEW = 1000  # rows before which a share says nothing
_IDS = ("id", "_id")  # fields that are tried one after the other unless one is named


def next_rows(rows: Iterator[Row], enough: Callable[[Row], bool] = lambda _: False) -> list[Row]:
    """The next rows, up to one that is enough: few enough to hold, however long they are."""
    chunk: list[Row] = []
    characters = 0
    for row in rows:
        chunk.append(row)
        characters += sum(len(value) for value in (row.fields or {}).values() if isinstance(value, str))
        if len(chunk) == _ROWS or characters >= _CHARACTERS or enough(row):
            break
    return chunk


class SourceRows:
    """What a run reads: `rows`, the `rules` for them, and the `types` that are given for columns.

    The arguments are those of `index`. The first rows are read at once: a source that is not there or empty, or that has
    no such fields, is an error now.
    """

    def __init__(
        self,
        source: str | os.PathLike[str] | Iterable[Mapping[str, Any]],
        source_format: str | None,
        field: str,
        id_field: str | None,
        metadata: Sequence[str] | None,
        max_chars: int,
    ) -> None:
        kept, self.types = (None, {}) if metadata is None else parse_metadata(metadata)
        rules = RowRules(field, id_field or _IDS[0], kept, max_chars)
        self._source = Source(source, source_format, text_field=field, id_field=rules.id_field, max_chars=max_chars)
        self.size = self._source.size()
        rows = self._source.read()
        wanted = {field, rules.id_field} - {LINE_ID}
        first = next_rows(rows, lambda row: wanted <= (row.fields or {}).keys())
        self.rules = self._settled(rules, first, _IDS if id_field is None else (id_field,))
        self.rows = itertools.chain(first, rows)

    def __str__(self) -> str:
        return self._source.name

    def refuse(self, path: Path) -> None:
        """Raise an error if a file that is to be written is one of the source's."""
        if self._source.reads(path):
            raise ValueError(f"{path} is part of the source: write the rejects to another file.")

    def _settled(self, rules: RowRules, first: Sequence[Row], ids: Sequence[str]) -> RowRules:
        """The rules with the field that holds the ids of these rows."""
        if not first:
            raise ValueError(f"There are no documents in {str(self)!r}: it is empty.")
        names = dict.fromkeys(str(name) for row in first for name in row.fields or ())
        if not names:
            return rules  # none of them can be used, for reasons that are counted
        there = f"in {self}: the fields are {', '.join(map(repr, names))}"
        if rules.text_field not in names:
            raise ValueError(f"There is no field {rules.text_field!r} {there}. Choose the text column with --field.")
        chosen = next((name for name in ids if name in names or name == LINE_ID), None)
        if chosen is None:
            advice = f"Choose the id column with --id, or use --id {LINE_ID}."
            raise ValueError(f"There is no field {ids[0]!r} {there}. {advice}")
        return replace(rules, id_field=chosen)


class Rejects:
    """A file with one JSON object for each row that was skipped; it is made when there is something to write."""

    def __init__(self, path: str | os.PathLike[str] | None, max_share: float) -> None:
        if not 0.0 <= max_share <= 1.0:
            raise ValueError(f"The share of rows that may be rejected must lie in [0, 1], not {max_share}.")
        self._given, self.max_share = path, max_share
        self.reasons: Counter[str] = Counter()
        self.rows = 0
        self._file: IO[str] | None = None

    def begin(self, default: Path, source: SourceRows) -> None:
        """Settle where the file goes, which must be none of the source's."""
        self.path = default if self._given is None else Path(self._given)
        source.refuse(self.path)
        self.path.unlink(missing_ok=True)  # each run reads the whole source, and so its rejects are whole, too

    def add(self, place: Place, reason: str, name: str | None = None) -> None:
        """Write one row down."""
        self.reasons[kind_of(reason)] += 1
        if self._file is None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._file = self.path.open("w", encoding="utf-8")
        entry = {"file": place.file, "line": place.line, "reason": reason} | ({} if name is None else {"id": name})
        self._file.write(json.dumps(entry) + "\n")

    def seen(self, rows: int = 1, *, last: bool = False) -> None:
        """Count rows of any kind, and stop the run if too many of them were bad."""
        self.rows += rows
        bad = sum(self.reasons.values())
        if (last or self.rows >= _FEW) and bad > self.max_share * self.rows:
            self.close()
            raise RuntimeError(
                f"{self}; the limit is {100 * self.max_share:g} %. See {self.path}. Documents that are already indexed stay. "
                "Fix the rows, or raise --max-rejects."
            )

    def __str__(self) -> str:
        kinds = ", ".join(f"{reason}: {count:,}" for reason, count in self.reasons.most_common(3))
        return f"{sum(self.reasons.values()):,} of {self.rows:,} rows could not be used ({kinds})"

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()
            self._file = None
