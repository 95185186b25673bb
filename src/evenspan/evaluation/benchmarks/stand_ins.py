"""Sentences of documents that stand in for questions: the same number from beginning, middle and end of each."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
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

    Not taken are titles, sentences that stand in the texts more than once or hold a line that does, and sentences across the
    edge of two thirds. A document is passed over where a third has none. What is drawn from a document depends on it and the
    seed alone, but for what it repeats of others.
    """
    sentences = [_sentences(text, title) for text, title in zip(texts.texts, texts.titles, strict=True)]
    times = Counter(
        _same(text[slice(*span)]) for text, spans in zip(texts.texts, sentences, strict=True) for span in spans
    )
    lines = Counter(_same(line) for text in texts.texts for line in text.splitlines() if line.strip())

    def is_repeated(sentence: str) -> bool:
        return times[_same(sentence)] > 1 or any(lines[_same(line)] > 1 for line in sentence.splitlines())

    drawn = []
    for name, text, spans in zip(texts.names, texts.texts, sentences, strict=True):
        pick = random.Random(f"evenspan stand-ins {seed} {name}")  # noqa: S311 - a sample, not a secret
        by_third: dict[str, list[Span]] = defaultdict(list)
        for span in spans:
            groups = thirds(*span, len(text))
            if len(groups) == 1 and not is_repeated(text[slice(*span)]):
                by_third[groups[0]].append(span)
        count = min(each, *(len(by_third[group]) for group in POSITIONS))
        for group in POSITIONS:
            for start, end in sorted(pick.sample(by_third[group], count)):
                drawn.append(StandIn(name, start, end, group, _thinned(text[start:end], left_out, pick)))
    return drawn


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
            if len(piece) >= FEWEST and piece[-1][1] - piece[0][0] >= FEWEST_CHARACTERS:
                spans.append((piece[0][0], piece[-1][1]))
    return spans


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
