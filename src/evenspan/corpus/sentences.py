"""Where sentences end, in any script: a text is cut into spans that cover all of it.

Marks that can be nothing else are ends wherever they stand. What a full stop means in Latin, Cyrillic or Greek text is
left to sentencex, which knows the abbreviations of many languages. It does not look into quotations and brackets, and
takes a mark that nothing closes for one that goes on to the end: it is shown spaces in their place.
"""

from __future__ import annotations

import re
import sys
from importlib.metadata import version
from itertools import pairwise

from evenspan.corpus.languages import CODES, detect_language

# Full stops of scripts without capitals end a sentence wherever they stand, in front of a number, too.
_ALWAYS = "。！？｡．؟۔།॥।፧፨።༎།។៕᙮᠃᠉꓿꘎"
_CLOSING = "\"'”’»›)\\]}）」』】》〉］〕"
_CERTAIN = re.compile(rf"[{_ALWAYS}]+[{_CLOSING}]*\s*|\n\s*\n\s*")
_FULL_STOP = re.compile(rf"(?<![.!?…])[.!?…]++[{_CLOSING}]*\s+")  # where sentencex fails
_FINISHED = re.compile(rf"[{_ALWAYS}.!?…][{_CLOSING}]*\s*$")
_CLOSED = re.compile(r"(?<=[.!?…])[)\]}’]+")  # behind the end of a sentence
_OPENING = '"“”„‟«»‹›‘([{（「『【《〈［〔¿¡'
# It fails at spaces of several bytes, too, and takes no halves of surrogate pairs.
_SHOWN = {ord(space): " " for space in map(chr, range(sys.maxunicode + 1)) if space.isspace() and not space.isascii()}
_SHOWN |= dict.fromkeys(range(0xD800, 0xE000), "\ufffd") | {ord(mark): " " for mark in _OPENING}
_WORD = re.compile(r"\S")
_RULES = 2  # of this file: counted up when a text is cut otherwise


def sentence_rules() -> str:
    """What finds sentences, with its version: vectors of chunks are cached under it."""
    return f"{_RULES}, sentencex {version('sentencex')}"


def sentence_spans(text: str) -> list[tuple[int, int]]:
    """Where the sentences of a text begin and end; spaces belong to the sentence before them.

    Example:
        >>> [text[start:end] for text in ["Dr. Ray left. Why? 他走了。真的！"] for start, end in sentence_spans(text)]
        ['Dr. Ray left. ', 'Why? ', '他走了。', '真的！']
    """
    shown = _CLOSED.sub(lambda match: " " * len(match[0]), text.translate(_SHOWN))  # as long as the text
    languages = {"en", CODES.get(detect_language([text]) or "", "en")}
    starts: list[int] = []
    word, content = 0, len(shown.rstrip())  # behind the first character of the last sentence, and behind all words
    for begin, end in pairwise([0, *(match.end() for match in _CERTAIN.finditer(text)), len(text)]):
        found = [_starts(shown[begin:end], language) for language in languages]
        for start in sorted(found[0].intersection(*found[1:])):
            if word <= begin + start < content:
                place = _WORD.search(shown, begin + start).start()  # type: ignore[union-attr]
                word = place + 1
                goes_on = shown[place].islower() and shown[place - 1] != "\n"
                starts += [_with_opening(text, place)] * (not goes_on or not starts)
    return list(pairwise([0, *starts[1:], len(text)])) if text else []


def is_finished(line: str) -> bool:
    """Whether a line ends as sentences do; a heading does not."""
    return _FINISHED.search(line) is not None


def _starts(text: str, language: str) -> set[int]:
    """Where sentences begin in a stretch without a certain end: at its beginning, and behind spaces."""
    from sentencex import get_sentence_boundaries

    try:
        found = [sentence["start_index"] for sentence in get_sentence_boundaries(language, text)]
    except BaseException as error:
        if type(error).__name__ != "PanicException":  # of Rust: it is no Exception
            raise
        found = [match.end() for match in _FULL_STOP.finditer(text)]
    return {0, *(start for start in found if start and text[start - 1].isspace())}


def _with_opening(text: str, start: int) -> int:
    """Where a sentence begins with the quotation marks and brackets that open in front of it."""
    while start > 1 and (mark := text[start - 1]) in _OPENING:
        before = text[start - 2]
        if not (before.isspace() or before in _OPENING or (before in _ALWAYS and mark not in _CLOSING)):
            break
        start -= 1
    return start
