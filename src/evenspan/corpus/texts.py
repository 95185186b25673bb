"""Texts out of any source, or a sample of them: which documents there are, and how many rows are left out."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from evenspan.corpus.documents import LINE_ID, BadRowError, Row, RowRules, kind_of
from evenspan.corpus.sources import STDIN, Source

_NAMES = ("_id", "id", "name", "title")
_AHEAD = 100  # rows that are looked at to find the field of the text
_MAX_REJECTS = 0.1  # of the rows, for `evenspan index` to go on unless it is told otherwise


@dataclass
class Texts:
    """Documents with their names, how many there were to draw from, and how many rows were left out, for each reason."""

    names: list[str] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    titles: list[str] = field(default_factory=list)  # empty where there is none
    available: int = 0
    left_out: Counter[str] = field(default_factory=Counter)
    first: list[Row] = field(default_factory=list)  # good and bad, to see which fields there are

    def only(self, places: Iterable[int]) -> Texts:
        """Some of the documents, by their places, in their order."""
        chosen = sorted(places)
        names, texts, titles = ([kept[place] for place in chosen] for kept in (self.names, self.texts, self.titles))
        return replace(self, names=names, texts=texts, titles=titles)

    def with_own_names(self) -> Texts:
        """The same, with a number behind each name that an earlier document has."""
        seen: set[str] = set()
        names = []
        for name in self.names:
            own = next(
                each
                for each in itertools.chain([name], (f"{name}~{n}" for n in itertools.count(2)))
                if each not in seen
            )
            seen.add(own)
            names.append(own)
        return replace(self, names=names)

    def in_words(self) -> str:
        """What was left out, if anything."""
        if not self.left_out:
            return ""
        total = sum(self.left_out.values())
        reasons = ", ".join(f"{reason} ({count})" for reason, count in self.left_out.most_common())
        return f"{total} of {total + self.available} rows were left out: {reasons}."


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
    drawn, draw = Texts(), random.Random(seed)  # noqa: S311
    kept: list[tuple[int, str, str, str]] = []  # with the number of each, to put them back in order
    source = Source(str(location), source_format, text_field=column or "text", id_field="_id", wanted=_NAMES)
    single = Path(location).is_file()
    failures: list[Exception] = []
    parts = 0
    for name, rows in source.parts():
        parts += 1
        try:
            for row, text in _texts(name, rows, column, drawn):
                drawn.available += 1
                called = _name(row, Path(name).name if single else name)
                document = (drawn.available, called, text, str((row.fields or {}).get("title") or ""))
                if sample is None or len(kept) < sample:
                    kept.append(document)
                elif (place := draw.randrange(drawn.available)) < sample:  # all have the same chance to stay
                    kept[place] = document
        except (OSError, ValueError) as error:
            failures.append(error)
            drawn.left_out["in files that cannot be read"] += 1
    if failures and (parts == 1 or not drawn.available):  # one bad file of a folder does not keep the others back
        raise failures[0]
    if not drawn.available:
        raise ValueError(f"There are no documents in {str(location)!r}. {drawn.in_words()}".rstrip())
    for _, name, text, title in sorted(kept):
        drawn.names.append(name)
        drawn.texts.append(text)
        drawn.titles.append(title)
    return drawn


def index_options(
    location: str, read: Texts, column: str | None = None, source_format: str | None = None
) -> dict[str, str]:
    """The options that `evenspan index` needs to read the same documents: it takes no other field than `text` unasked.

    Where more of the first rows than it skips have no id of their own, documents are called by their lines. Where it would
    stop at as many bad rows as there are, it is allowed more.
    """
    rows = read.first
    if location != STDIN:  # of files it reads other fields, too
        rows = list(itertools.islice(Source(location, source_format, text_field=column or "text").read(), _AHEAD))
    keys = _keys(rows)
    chosen = _text_field(keys, column)
    options = {} if chosen == "text" else {"--field": chosen}
    named = "id" if "id" in keys else "_id"
    ids = [row.fields.get(named) for row in rows if row.fields is not None]
    own = {str(value) for value in ids if isinstance(value, (str, int)) and str(value)}
    usable = chosen != named and len(own) >= (1 - _MAX_REJECTS) * len(ids)
    good = read.available / (read.available + sum(read.left_out.values()))
    if usable and ids:
        good *= len(own) / len(ids)  # at worst other rows have no id than are bad
    options |= {} if usable else {"--id": LINE_ID}
    tenths = int(round(10 * (1 - good), 6)) + 1  # with some to spare, as there may be more of them in front
    return options | ({"--max-rejects": f"{min(10, tenths) / 10:g}"} if 1 - good > _MAX_REJECTS else {})


def _keys(rows: Iterable[Row]) -> dict[str, None]:
    return dict.fromkeys(str(key) for row in rows for key in row.fields or ())


def _text_field(keys: dict[str, None], column: str | None) -> str:
    alone = column is None and "text" not in keys and len(keys) == 1
    return next(iter(keys)) if alone else column or "text"


def _texts(name: str, rows: Iterable[Row], column: str | None, drawn: Texts) -> Iterator[tuple[Row, str]]:
    """Each row that is a document, and its text; the others are counted."""
    rows = iter(rows)
    ahead = list(itertools.islice(rows, _AHEAD))
    drawn.first += ahead[: _AHEAD - len(drawn.first)]
    keys = _keys(ahead)
    chosen = _text_field(keys, column)
    if keys and chosen not in keys:
        fields = ", ".join(map(repr, keys))
        raise ValueError(f"{name} has no field {chosen!r}. Choose one with --field: {fields}.")
    rules = RowRules(chosen, LINE_ID, metadata=())
    for row in itertools.chain(ahead, rows):
        try:
            yield row, rules.document(row).text
        except BadRowError as error:
            drawn.left_out[kind_of(str(error))] += 1


def _name(row: Row, file: str) -> str:
    """What a document is called: its file, and there its id or its line."""
    values = ((row.fields or {}).get(name) for name in _NAMES)
    known = (str(value) for value in values if isinstance(value, (str, int)) and str(value).strip())
    value = next(known, str(row.place.line))
    return storable(file if value == row.place.file else f"{file}:{value}")  # a file of plain text is one document


def storable(text: str) -> str:
    """A text without halves of surrogate pairs, which tokenizers and files refuse."""
    return text.encode("utf-8", "replace").decode("utf-8")
