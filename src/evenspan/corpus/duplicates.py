"""Documents that say nearly the same."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from hashlib import blake2b
from typing import NamedTuple

from evenspan.corpus.terms import unit_spans

_LENGTH = 8  # units in a row, words or characters
_ONE_IN = 4  # of these rows are compared, the same ones everywhere, in texts of more than so many
_MANY = 200
_SAME = 0.5  # of the rows of the shorter text
_FEWEST = 3  # rows in common, where only some were compared
_COMMON, _COMMON_SHARE = 5, 0.1  # texts that share a row, and their share of all, for it to be boilerplate
_OWN = 0.1  # of the rows of a text, to be compared by what is no boilerplate


class _Compared(NamedTuple):
    """The rows that a text is compared by: of a long one some."""

    rows: set[int]
    is_long: bool

    @property
    def few(self) -> int:
        """How many of them are among the one in four."""
        return sum(row % _ONE_IN == 0 for row in self.rows)


def near_duplicates(texts: Sequence[str]) -> set[int]:
    """The places of texts of which an earlier one has at least half: of each such pair the later one.

    Texts are compared by rows of eight words (characters in scripts without spaces), whatever case they are in. Rows of many
    texts, such as a notice below every page, do not count, unless a text has hardly any others: then it is a copy.
    """
    holders: dict[int, list[int]] = defaultdict(list)
    compared = _without_boilerplate([_compared(text) for text in texts])
    sizes = [(len(each.rows), each.few, each.is_long) for each in compared]
    repeats: set[int] = set()
    for place, (rows, _) in enumerate(compared):
        shared = Counter(holder for row in rows for holder in holders.get(row, ()))
        if any(_are_same(count, sizes[holder], sizes[place]) for holder, count in shared.items()):
            repeats.add(place)
            continue
        for row in rows:
            holders[row].append(place)
    return repeats


def _compared(text: str) -> _Compared:
    rows = _rows(text)
    is_long = len(rows) > _MANY
    return _Compared({row for row in rows if row % _ONE_IN == 0} if is_long else rows, is_long)


def _without_boilerplate(compared: Sequence[_Compared]) -> list[_Compared]:
    times = Counter(row for each in compared for row in each.rows)
    common = {row for row, count in times.items() if count >= _COMMON and count > _COMMON_SHARE * len(compared)}
    own = [each._replace(rows=each.rows - common) for each in compared]
    return [less if len(less.rows) >= _OWN * len(all_.rows) else all_ for less, all_ in zip(own, compared, strict=True)]


def _rows(text: str) -> set[int]:
    """Digests of the rows of a text."""
    units = [text[start:end].casefold() for start, end in unit_spans(text)]
    rows = {" ".join(units[start : start + _LENGTH]) for start in range(max(1, len(units) - _LENGTH + 1))}
    return {int.from_bytes(blake2b(row.encode("utf-8", "replace"), digest_size=8).digest()) for row in rows}


def _are_same(shared: int, one: tuple[int, int, bool], other: tuple[int, int, bool]) -> bool:
    """Whether two texts, of these sizes, have enough rows in common; of a long one only some are known, in a short one, too."""
    if not one[2] and not other[2]:
        return shared >= _SAME * min(one[0], other[0])
    return shared >= max(_FEWEST, _SAME * min(one[1], other[1]))
