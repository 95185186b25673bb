"""Where sentences end, in any script: a text is cut into spans that cover all of it."""

from __future__ import annotations

import re
from itertools import pairwise

# Full stops of scripts without capitals end a sentence wherever they stand; those of Latin, Cyrillic and Greek text stand
# in abbreviations and numbers as well.
_ALWAYS = "。！？｡．؟۔।॥።፧፨։།༎။។៕᙮᠃᠉꓿꘎"
_CLOSING = "\"'”’»›)\\]}）」』】》〉］〕"
_OPENING = "\"'“‘«‹(\\[{（「『【《〈¿¡–—-"
_END = re.compile(
    rf"[{_ALWAYS}]+[{_CLOSING}]*\s*"  # with what closes behind it
    rf"|(?<![.!?…])[.!?…]++[{_CLOSING}]*+\s+"
    r"|(?<![ \t])[ \t]*+\n\s*\n\s*"  # an empty line
    r"|\n(?=[ \t]*(?:[-*•–]|\d+[.)])\s)"  # the next point of a list
)
_ABBREVIATION = re.compile(
    r"mrs?|ms|dr|prof|st|sr|jr|vs|etc|al|figs?|nos?|vol|pp?|eds?|cf|ca|approx|inc|ltd|co|corp|gen|col|sgt|rev|hon|dept|est"
    r"|u\.[sk]|e\.g|i\.e|[ap]\.m|n\.b|jan|feb|mar|apr|jun|jul|aug|sept?|oct|nov|dec"
    r"|z\.b|d\.h|u\.a|usw|bzw|ggf|evtl|nr|bd|hr|fr|abs|art|mme|mlle|m|p\.ex|ecc|sig|dott|avv|sra|uds?|pág|núm|av"
    r"|гг?|ул|тыс|млн|млрд|см|стр|рис|им|др",
    re.IGNORECASE,
)
_FINISHED = re.compile(rf"[{_ALWAYS}.!?…][{_CLOSING}]*\s*$")
_LAST_WORD = re.compile(r"(\S+)$")
_LONGEST_WORD = 64  # that matters here: no abbreviation is as long, so that no text is searched again and again
_FOLLOWING = re.compile(rf"[{_OPENING}]*+(.)", re.DOTALL)


def sentence_spans(text: str) -> list[tuple[int, int]]:
    """Where the sentences of a text begin and end; spaces belong to the sentence before them.

    Example:
        >>> [text[start:end] for text in ["Dr. Ray left. Why? 他走了。真的！"] for start, end in sentence_spans(text)]
        ['Dr. Ray left. ', 'Why? ', '他走了。', '真的！']
    """
    cuts = [0]
    for match in _END.finditer(text):
        if match.end() < len(text) and _ends(text, match, cuts[-1]):
            cuts.append(match.end())
    return list(pairwise([*cuts, len(text)])) if text else []


def is_finished(line: str) -> bool:
    """Whether a line ends as sentences do; a heading does not."""
    return _FINISHED.search(line) is not None


def _ends(text: str, match: re.Match[str], start: int) -> bool:
    """Whether a sentence ends here, rather than an abbreviation, an initial or a number."""
    mark = match[0].lstrip()[:1]
    if mark != "." or match[0].lstrip().startswith(".."):
        return bool(text[start : match.start() + 1].strip())
    following = _FOLLOWING.match(text, match.end())  # not of a slice: the rest of a long text is not copied each time
    if following and following[1].islower():
        return False
    word = _LAST_WORD.search(text, max(start, match.start() - _LONGEST_WORD), match.start())
    before = word[1].lstrip(_OPENING.replace("\\", "")) if word else ""
    initial = len(before) == 1 and before.isupper() and before.isalpha()
    return not (initial or _ABBREVIATION.fullmatch(before))
