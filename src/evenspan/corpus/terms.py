"""The words that a text is found by, without vectors; and the units that texts of any script are made of."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable
from itertools import pairwise

_CJK = "㐀-鿿豈-﫿぀-ヿ가-힯"
_UNSPACED = _CJK + "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff"  # and Thai, Lao, Burmese, Khmer
MARKS = r"\u0300-\u036f\u0591-\u05bd\u064b-\u065f\u0670\u0900-\u0963\u0966-\u0dff"  # parts of words that are no letters
_WORD = re.compile(rf"[{_CJK}]|[^\W{_CJK}]+")
_RUN = re.compile(rf"([{_UNSPACED}]+)|(?:[^\W{_UNSPACED}]|[{MARKS}])+")
# Thai to Tibetan, Burmese, Khmer, kana, Han (with its extensions and compatibility forms) and Yi.
_RANGES = (
    ("\u0e00", "\u0fff"), ("\u1000", "\u109f"), ("\u1780", "\u17ff"), ("\u3005", "\u30ff"), ("\u3400", "\u9fff"),
    ("\ua000", "\ua4cf"), ("\uf900", "\ufaff"), ("\U00020000", "\U0003ffff"),
)  # fmt: skip
_BY_CHARACTER = "".join(f"{first}-{last}" for first, last in _RANGES)
_UNIT_MARKS = "".join(letter for letter in map(chr, range(0x0E00, 0x1800)) if unicodedata.category(letter)[0] == "M")
_UNIT = re.compile(rf"[{_BY_CHARACTER}][{_UNIT_MARKS}]*|[^\s{_BY_CHARACTER}]+")


def words(text: str) -> list[str]:
    """Lower-case words; in Chinese, Japanese and Korean each character is one."""
    return _WORD.findall(text.lower())


def terms(text: str, stem: Callable[[list[str]], list[str]] | None = None) -> list[str]:
    """What is matched: stemmed words, and in scripts without spaces every two neighbouring characters.

    Example:
        >>> terms("The 東京都 tower")
        ['the', '東京', '京都', 'tower']
    """
    tokens: list[str] = []
    for run in _RUN.finditer(text.lower()):
        tokens += ["".join(pair) for pair in pairwise(run[0])] or [run[0]] if run[1] else [run[0]]
    return stem(tokens) if stem is not None else tokens


def unit_spans(text: str) -> list[tuple[int, int]]:
    """Where the units of a text begin and end; marks belong to the character before them, punctuation to the word.

    Example:
        >>> [text[start:end] for text in ["It's 3.5 km. 他走了"] for start, end in unit_spans(text)]
        ["It's", '3.5', 'km.', '他', '走', '了']
    """
    return [match.span() for match in _UNIT.finditer(text)]
