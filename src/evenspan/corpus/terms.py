"""The words that a text is found by, without vectors."""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import pairwise

_CJK = "㐀-鿿豈-﫿぀-ヿ가-힯"
_UNSPACED = _CJK + "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff"  # and Thai, Lao, Burmese, Khmer
MARKS = r"\u0300-\u036f\u0591-\u05bd\u064b-\u065f\u0670\u0900-\u0963\u0966-\u0dff"  # parts of words that are no letters
_WORD = re.compile(rf"[{_CJK}]|[^\W{_CJK}]+")
_RUN = re.compile(rf"([{_UNSPACED}]+)|(?:[^\W{_UNSPACED}]|[{MARKS}])+")


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
