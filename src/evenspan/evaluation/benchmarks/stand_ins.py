"""Sentences of documents that stand in for questions: the same number from beginning, middle and end of each."""

from __future__ import annotations

import random
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Container, Sequence
from itertools import accumulate
from typing import NamedTuple

from evenspan.corpus.sentences import is_finished, sentence_spans
from evenspan.corpus.terms import unit_spans
from evenspan.corpus.texts import Texts
from evenspan.evaluation.benchmark import POSITIONS, thirds

FEWEST, FEWEST_CHARACTERS = 6, 12  # words and characters of a sentence, to say anything
MOST = 60  # text without marks is cut after so many
LONGEST_HEADING = 200  # characters; scripts without full stops have paragraphs that end as headings do

Span = tuple[int, int]


class StandIn(NamedTuple):
    """A sentence of a document, thinned, and where it stands."""

    document: str
    start: int
    end: int
    group: str
    text: str


def draw(texts: Texts, each: int, left_out: float, seed: int) -> list[StandIn]:
    """Up to `each` sentences from every third of every document, as many from one as from the others.

    Not taken are sentences that stand in the texts more than once, or touch a title or a line that does. Of sentences across
    the edge of two thirds what lies in one is taken where it has no others, as in texts of a few long sentences. A document is
    passed over where a third has none. What is drawn from a document depends on it and the seed alone, but for what it repeats
    of others.
    """
    sentences = [_sentences(text, title) for text, title in zip(texts.texts, texts.titles, strict=True)]
    times = Counter(
        _same(text[slice(*span)]) for text, spans in zip(texts.texts, sentences, strict=True) for span in spans
    )
    lines = Counter(_same(line) for text in texts.texts for line in text.splitlines() if line.strip())
    repeated = {line for line, count in lines.items() if count > 1}
    drawn = []
    for name, text, title, spans in zip(texts.names, texts.texts, texts.titles, sentences, strict=True):
        pick = random.Random(f"evenspan stand-ins {seed} {name}")  # noqa: S311 - a sample, not a secret
        once = [span for span in spans if times[_same(text[slice(*span)])] == 1]
        by_third = _by_third(text, _outside(text, repeated | {_same(title)}, once))
        count = min(each, *(len(by_third[group]) for group in POSITIONS))
        for group in POSITIONS:
            for start, end in sorted(pick.sample(by_third[group], count)):
                drawn.append(StandIn(name, start, end, group, _thinned(text[start:end], left_out, pick)))
    return drawn


def _outside(text: str, refused: Container[str], spans: Sequence[Span]) -> list[Span]:
    """The spans that touch no refused line, not even a piece of it."""
    lines = text.splitlines(keepends=True)
    starts = list(accumulate(map(len, lines), initial=0))[:-1]
    bad = [_same(line) in refused for line in lines]
    return [span for span in spans if not any(bad[bisect_right(starts, span[0]) - 1 : bisect_left(starts, span[1])])]


def _by_third(text: str, spans: Sequence[Span]) -> dict[str, list[Span]]:
    """The spans that lie in each third; of a third without any what others have in it."""
    found: dict[str, list[Span]] = {}
    for group in POSITIONS:
        reaching = [span for span in spans if group in thirds(*span, len(text))]
        found[group] = [span for span in reaching if thirds(*span, len(text)) == (group,)]
        for start, end in reaching if not found[group] else ():
            units = [(start + first, start + last) for first, last in unit_spans(text[start:end])]
            inside = [unit for unit in units if thirds(*unit, len(text)) == (group,)]
            found[group] += [(inside[0][0], inside[-1][1])] if _says_enough(inside) else []
    return found


def _sentences(text: str, title: str) -> list[Span]:
    """The sentences that are long enough, without what stands above the text; long stretches without a mark in pieces."""
    spans = []
    begin = _heading_end(text, title)
    for start, end in sentence_spans(text[begin:]):
        units = [
            (begin + start + first, begin + start + last)
            for first, last in unit_spans(text[begin + start : begin + end])
        ]
        pieces = -(-len(units) // MOST)
        for number in range(pieces):
            piece = units[number * len(units) // pieces : (number + 1) * len(units) // pieces]
            if _says_enough(piece):
                spans.append((piece[0][0], piece[-1][1]))
    return spans


def _says_enough(units: Sequence[Span]) -> bool:
    return len(units) >= FEWEST and units[-1][1] - units[0][0] >= FEWEST_CHARACTERS


def _heading_end(text: str, title: str) -> int:
    """Where the text begins behind a title: the one that is known, or a short first line that does not end as sentences do."""
    start = len(text) - len(text.lstrip())
    if title.strip() and text.startswith(title.strip(), start):
        return start + len(title.strip())
    line, _, rest = text[start:].partition("\n")
    is_heading = rest.strip() and len(line) <= LONGEST_HEADING and not is_finished(line)
    return start + len(line) if is_heading else start


def _same(sentence: str) -> str:
    return " ".join(sentence.casefold().split())


def _thinned(sentence: str, left_out: float, pick: random.Random) -> str:
    """A sentence without a share of its words, the others in their order."""
    units = unit_spans(sentence)
    kept = sorted(pick.sample(range(len(units)), max(3, round((1 - left_out) * len(units)))))
    text = ""
    for place in kept:
        start, end = units[place]
        spaced = place > 0 and units[place - 1][1] < start
        text += " " * (spaced and bool(text)) + sentence[start:end]
    return text
