"""Which documents an audit looks at: a sample of those in files or in memory, and how many are left out."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from evenspan.corpus.documents import LINE_ID, BadRowError, Row, RowRules, kind_of
from evenspan.corpus.sources import Source

_NAMES = ("_id", "id", "name", "title")
_AHEAD = 100  # rows that are looked at to find the field of the text


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
    drawn, draw = Texts(), random.Random(seed)  # noqa: S311
    kept: list[tuple[int, str, str]] = []  # with the number of each, to put them back in order
    source = Source(str(location), source_format, text_field=column or "text", id_field="_id", wanted=_NAMES)
    single = Path(location).is_file()
    failures: list[Exception] = []
    parts = 0
    for name, rows in source.parts():
        parts += 1
        try:
            for row, text in _texts(name, rows, column, drawn.left_out):
                drawn.found += 1
                document = (drawn.found, _name(row, Path(name).name if single else name), text)
                if sample is None or len(kept) < sample:
                    kept.append(document)
                elif (place := draw.randrange(drawn.found)) < sample:  # all have the same chance to stay
                    kept[place] = document
        except (OSError, ValueError) as error:
            failures.append(error)
            drawn.left_out["in files that cannot be read"] += 1
    if failures and (parts == 1 or not drawn.found):  # one bad file of a folder does not keep the others back
        raise failures[0]
    if not drawn.found:
        raise ValueError(f"There is no document in {str(location)!r}. {drawn.in_words()}".rstrip())
    for _, name, text in sorted(kept):
        drawn.names.append(name)
        drawn.texts.append(text)
    return drawn


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
    return _storable(file if value == row.place.file else f"{file}:{value}")  # a file of plain text is one document


def sample_texts(
    texts: Sequence[str], names: Sequence[str] | None, sample: int | None, seed: int, notes: list[str]
) -> tuple[list[str], list[str]]:
    """The documents to look at and their names, in their own order; what is no text or empty is left out and counted."""
    if isinstance(texts, str):
        raise TypeError("texts must be a list of documents, not one string.")
    texts = list(texts)
    if names is not None and len(names) != len(texts):
        raise ValueError(f"There are {len(names)} names for {len(texts)} texts.")
    usable = [
        number
        for number, text in enumerate(texts)
        if isinstance(text, str) and text.strip() and _storable(text) == text
    ]
    if left_out := len(texts) - len(usable):
        notes.append(f"{left_out} of {len(texts)} texts are empty, no text, or not UTF-8, and were left out.")
    if not usable:
        raise ValueError("There is no text to look at: texts must hold at least one document.")
    if sample is not None and sample < len(usable):
        drawn = np.random.default_rng(seed).choice(len(usable), size=sample, replace=False)
        notes.append(f"A sample of {sample} of {len(usable)} documents.")
        usable = [usable[number] for number in sorted(drawn)]
    of_usable = [number if names is None else names[number] for number in usable]
    return [texts[number] for number in usable], [_storable(str(name)) for name in of_usable]


def _storable(text: str) -> str:
    """A text without halves of surrogate pairs, which tokenizers and files refuse."""
    return text.encode("utf-8", "replace").decode("utf-8")
