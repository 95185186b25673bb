"""Texts cut into chunks of tokens: one after the other or overlapping, anywhere or between sentences."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from sentence_transformers import SentenceTransformer

from evenspan.corpus.sentences import sentence_spans
from evenspan.errors import require_extra
from evenspan.models.windows import text_windows

CUTS = ("tokens", "sentences")
_CHARACTERS = 1_000_000  # tokenized at a time: the places of tokens take many times the memory of their text

Span = tuple[int, int]


@dataclass(frozen=True)
class Chunker:
    """How texts are cut.

    Args:
        window: most tokens in a chunk.
        overlap: tokens that a chunk has in common with the one before, at most.
        cut: `"tokens"`, after so many tokens, or `"sentences"`, before the sentence that would be cut in two; one that is
            longer than a chunk is cut after so many tokens.
    """

    window: int
    overlap: int = 0
    cut: str = "sentences"

    def __post_init__(self) -> None:
        if self.window < 1:
            raise ValueError(f"window must be at least 1, not {self.window}.")
        if not 0 <= self.overlap < self.window:
            raise ValueError(
                f"overlap must be at least 0 and less than the {self.window} tokens of a chunk, not {self.overlap}."
            )
        if self.cut not in CUTS:
            raise ValueError(f"cut must be {' or '.join(CUTS)}, not {self.cut!r}.")
        if self.cut == "sentences":
            require_extra("index", "Cutting between sentences", "sentencex")

    def spans(self, tokenizer: Any, texts: Sequence[str]) -> Iterator[list[Span]]:
        """From and to which character the chunks of each text go: at least one, and together they hold all its tokens."""
        for part in text_windows(texts, len(texts) or 1, _CHARACTERS):
            for text, places in zip(part, token_places(tokenizer, part), strict=True):
                starts = [place[0] for place in places]
                chunks = self._by_sentence(text, starts) if self.cut == "sentences" else self.by_token(len(places))
                ends = [*starts[1:], len(text)]
                yield [(starts[first], ends[last - 1]) for first, last in chunks] or [(0, len(text))]

    def chunks(self, model: SentenceTransformer, texts: Sequence[str]) -> list[list[str]]:
        """The chunks of each text."""
        return [
            [text[start:end] for start, end in spans]
            for text, spans in zip(texts, self.spans(model.tokenizer, texts), strict=True)
        ]

    def by_token(self, count: int) -> list[Span]:
        """The chunks of so many tokens, from and to which token."""
        step = self.window - self.overlap
        last = max(1, -(-(count - self.overlap) // step)) if count else 0
        return [(place * step, min(place * step + self.window, count)) for place in range(last)]

    def _by_sentence(self, text: str, starts: Sequence[int]) -> list[Span]:
        """Whole sentences, as many as fit, in tokens; the next chunk begins with those of its last that fit in the overlap."""
        edges = [bisect_left(starts, span[0]) for span in sentence_spans(text)] + [len(starts)]
        pieces = [
            (place, min(place + self.window, end))
            for start, end in pairwise(edges)
            for place in range(start, end, self.window)
        ]
        chunks: list[Span] = []
        first = 0
        for number, (_, end) in enumerate(pieces):
            if end - pieces[first][0] > self.window:
                before = pieces[number - 1][1]
                chunks.append((pieces[first][0], before))
                first = next(
                    place
                    for place in range(first + 1, number + 1)
                    if before - pieces[place][0] <= self.overlap and end - pieces[place][0] <= self.window
                )
        return [*chunks, (pieces[first][0], pieces[-1][1])] if pieces else []


def token_places(tokenizer: Any, texts: Sequence[str]) -> list[list[Span]]:
    """Where the tokens of each text begin and end, those that stand for no character left out."""
    if not getattr(tokenizer, "is_fast", False):
        raise ValueError("The model's tokenizer does not say where tokens lie in a text, so that texts cannot be cut.")
    options = {"add_special_tokens": False, "truncation": False, "verbose": False}
    tokens = tokenizer(list(texts), return_offsets_mapping=True, **options)
    return [[place for place in places if place[1] > place[0]] for places in tokens["offset_mapping"]]
