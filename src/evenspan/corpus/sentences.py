"""Where sentences end, in any script: a text is cut into spans that cover all of it.

Marks that can be nothing else are ends wherever they stand. What a full stop means in Latin, Cyrillic or Greek text is
left to sentencex, which knows the abbreviations of many languages.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from importlib.metadata import version
from itertools import pairwise

from evenspan.corpus.languages import CODES, detect_language

# Full stops of scripts without capitals end a sentence wherever they stand, in front of a number, too.
_ALWAYS = "。！？｡．؟۔།॥।፧፨።༎།។៕᙮᠃᠉꓿꘎"
_CLOSING = "\"'”’»›)\\]}）」』】》〉］〕"
_CERTAIN = re.compile(rf"[{_ALWAYS}]+[{_CLOSING}]*\s*|\n\s*\n\s*")
_FULL_STOP = re.compile(rf"[.!?…]+[{_CLOSING}]*\s+")  # where sentencex fails
_FINISHED = re.compile(rf"[{_ALWAYS}.!?…][{_CLOSING}]*\s*$")
# sentencex fails at spaces of several bytes, and takes no halves of surrogate pairs: it is shown others in their place.
_SHOWN = {ord(space): " " for space in map(chr, range(sys.maxunicode + 1)) if space.isspace() and not space.isascii()}
_SHOWN |= dict.fromkeys(range(0xD800, 0xE000), "\ufffd")

Span = tuple[int, int]


def sentence_rules() -> str:
    """What finds sentences, with its version: vectors of chunks are cached under it."""
    return f"sentencex {version('sentencex')}"


def sentence_spans(text: str) -> list[Span]:
    """Where the sentences of a text begin and end; spaces belong to the sentence before them.

    Example:
        >>> [text[start:end] for text in ["Dr. Ray left. Why? 他走了。真的！"] for start, end in sentence_spans(text)]
        ['Dr. Ray left. ', 'Why? ', '他走了。', '真的！']
    """
    shown = text.translate(_SHOWN)  # as long as the text
    language = CODES.get(detect_language([text]) or "", "en")
    edges = [0, *(match.end() for match in _CERTAIN.finditer(shown)), len(shown)]
    starts = [
        start + first
        for start, end in pairwise(edges)
        for first, last in _sentences(shown[start:end], language)
        if not shown[start + first : start + last].isspace()
    ]
    return list(pairwise([0, *starts[1:], len(text)])) if text else []


def is_finished(line: str) -> bool:
    """Whether a line ends as sentences do; a heading does not."""
    return _FINISHED.search(line) is not None


def _sentences(text: str, language: str) -> Iterator[Span]:
    """Those of a stretch without a certain end."""
    from sentencex import get_sentence_boundaries

    try:
        found = get_sentence_boundaries(language, text)
    except BaseException as error:
        if type(error).__name__ != "PanicException":  # of Rust: it is no Exception
            raise
        yield from pairwise([0, *(match.end() for match in _FULL_STOP.finditer(text)), len(text)])
        return
    for sentence in found:
        yield sentence["start_index"], sentence["end_index"]
