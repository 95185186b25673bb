"""Documents that say nearly the same."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from hashlib import blake2b

from evenspan.corpus.terms import unit_spans

_LENGTH = 8  # units in a row, words or characters
_ONE_IN = 4  # of these rows are compared, the same ones everywhere, in texts of more than so many
_MANY = 200
_SAME = 0.5  # of the rows of the shorter text
_FEWEST = 3  # rows in common, where only some were compared


def near_duplicates(texts: Sequence[str]) -> set[int]:
    """The places of texts of which an earlier one has at least half: of each such pair the later one.

    Texts are compared by rows of eight words (characters in scripts without spaces), whatever case they are in.
    """
    holders: dict[int, list[int]] = defaultdict(list)
    sizes: list[tuple[int, int]] = []  # how many rows a text has, and how many of them are among the one in four
    repeats: set[int] = set()
    for place, text in enumerate(texts):
        rows = _rows(text)
        few = {row for row in rows if row % _ONE_IN == 0}
        sizes.append((len(rows), len(few)))
        rows = few if len(rows) > _MANY else rows
        shared = Counter(holder for row in rows for holder in holders.get(row, ()))
        if any(_are_same(count, sizes[holder], sizes[place]) for holder, count in shared.items()):
            repeats.add(place)
            continue
        for row in rows:
            holders[row].append(place)
    return repeats


def _rows(text: str) -> set[int]:
    """Digests of the rows of a text."""
    units = [text[start:end].casefold() for start, end in unit_spans(text)]
    rows = {" ".join(units[start : start + _LENGTH]) for start in range(max(1, len(units) - _LENGTH + 1))}
    return {int.from_bytes(blake2b(row.encode("utf-8", "replace"), digest_size=8).digest()) for row in rows}


def _are_same(shared: int, one: tuple[int, int], other: tuple[int, int]) -> bool:
    """Whether two texts, of these sizes, have enough rows in common; of a long one only some are known, in a short one, too."""
    if max(one[0], other[0]) <= _MANY:
        return shared >= _SAME * min(one[0], other[0])
    return shared >= max(_FEWEST, _SAME * min(one[1], other[1]))
