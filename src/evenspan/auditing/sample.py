"""A sample of documents with names, and how many rows are none."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from evenspan.corpus.documents import LINE_ID, BadRowError, Row, RowRules, kind_of
from evenspan.corpus.sources import Source

_NAMES = ("_id", "id", "name", "title")
_AHEAD = 100  # rows that are looked at to find the field of the text
_UNREADABLE = "in files that cannot be read"


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
        reasons = ", ".join(f"{reason} ({count})" for reason, count in self.left_out.most_common())
        return f"{total} of {total + self.found} rows were left out: {reasons}."


def read_texts(
    location: str | Path,
    column: str | None = None,
    sample: int | None = None,
    seed: int = 42,
    source_format: str | None = None,
) -> Texts:
    """Documents from whatever `corpus.Source` reads.

    Args:
        location: a file, a folder, a glob, `-` or a hub dataset.
        column: the field of the text; by default `text`, or the only one there is.
        sample: how many documents to keep, drawn at random while reading; None for all.
        seed: of the sample.
        source_format: of files whose name does not say it.

    Rows that are empty, no text or in another encoding than UTF-8, and files of a folder that cannot be read, are counted
    and left out.
    """
    sampled, kept, draw = Texts(), _Sample(sample), random.Random(seed)  # noqa: S311
    source = Source(str(location), source_format, text_field=column or "text", id_field="_id", wanted=_NAMES)
    single = Path(location).is_file()
    failures: list[Exception] = []
    parts = 0
    for name, rows in source.parts():
        parts += 1
        try:
            for row, text in _texts(name, rows, column, sampled.left_out):
                sampled.found += 1
                kept.add(_name(row, Path(name).name if single else name), text, draw)
        except (OSError, ValueError) as error:
            failures.append(error)
            sampled.left_out[_UNREADABLE] += 1
    if failures and (parts == 1 or not sampled.found):  # one bad file of a folder does not keep the others back
        raise failures[0]
    if not sampled.found:
        raise ValueError(f"There is no document in {str(location)!r}. {sampled.in_words()}".rstrip())
    sampled.names, sampled.texts = kept.in_order()
    return sampled


def _texts(name: str, rows: Iterable[Row], column: str | None, left_out: Counter[str]) -> Iterator[tuple[Row, str]]:
    """Each row that is a document, and its text; the others are counted."""
    rows = iter(rows)
    ahead = list(itertools.islice(rows, _AHEAD))
    keys = dict.fromkeys(str(key) for row in ahead for key in row.fields or ())
    alone = column is None and "text" not in keys and len(keys) == 1
    chosen = next(iter(keys)) if alone else column or "text"
    if keys and chosen not in keys:
        fields = ", ".join(map(repr, keys))
        raise ValueError(f"{name} has no field {chosen!r}: choose with --field, the fields are {fields}.")
    rules = RowRules(chosen, LINE_ID, metadata=())
    for row in itertools.chain(ahead, rows):
        try:
            yield row, rules.document(row).text
        except BadRowError as error:
            left_out[kind_of(str(error))] += 1


def _name(row: Row, file: str) -> str:
    """What a document is called: its file, and there its id or its line."""
    values = ((row.fields or {}).get(name) for name in _NAMES)
    known = (str(value) for value in values if isinstance(value, (str, int)) and str(value).strip())
    value = next(known, str(row.place.line))
    name = file if value == row.place.file else f"{file}:{value}"  # a file of plain text is one document
    return name.encode("utf-8", "replace").decode("utf-8")  # no file can hold halves of surrogate pairs


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
