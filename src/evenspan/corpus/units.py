"""Words, and in scripts without spaces characters: what texts of any script are made of."""

from __future__ import annotations

import re
import unicodedata

# Thai to Tibetan, Burmese, Khmer, kana, Han (with its extensions and compatibility forms) and Yi.
_RANGES = (
    ("\u0e00", "\u0fff"), ("\u1000", "\u109f"), ("\u1780", "\u17ff"), ("\u3005", "\u30ff"), ("\u3400", "\u9fff"),
    ("\ua000", "\ua4cf"), ("\uf900", "\ufaff"), ("\U00020000", "\U0003ffff"),
)  # fmt: skip
_UNSPACED = "".join(f"{first}-{last}" for first, last in _RANGES)
_MARKS = "".join(letter for letter in map(chr, range(0x0E00, 0x1800)) if unicodedata.category(letter)[0] == "M")
_UNIT = re.compile(rf"[{_UNSPACED}][{_MARKS}]*|[^\s{_UNSPACED}]+")


def unit_spans(text: str) -> list[tuple[int, int]]:
    """Where the units of a text begin and end; marks belong to the character before them, punctuation to the word.

    Example:
        >>> [text[start:end] for text in ["It's 3.5 km. 他走了"] for start, end in unit_spans(text)]
        ["It's", '3.5', 'km.', '他', '走', '了']
    """
    return [match.span() for match in _UNIT.finditer(text)]
