"""Documents cut into chunks of tokens: one after the other or overlapping, anywhere or between sentences."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from sentence_transformers import SentenceTransformer

from evenspan.corpus.sentences import sentence_spans
from evenspan.evaluation.methods.base import Windowed
from evenspan.models.reading import windows

CUTS = ("tokens", "sentences")

Span = tuple[int, int]


@dataclass(frozen=True)
class Chunked(Windowed):
    """A method that cuts documents into chunks.

    Args:
        window: most tokens in a chunk.
        overlap: tokens that a chunk has in common with the one before, at most.
        cut: `"tokens"`, after so many tokens, or `"sentences"`, before the sentence that would be cut in two; one that is
            longer than a chunk is cut after so many tokens.
    """

    overlap: int = 0
    cut: str = "tokens"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.overlap < self.window:
            raise ValueError(
                f"overlap must be at least 0 and less than the window of {self.window}, not {self.overlap}."
            )
        if self.cut not in CUTS:
            raise ValueError(f"cut must be {' or '.join(CUTS)}, not {self.cut!r}.")

    @property
    def name(self) -> str:
        """The kind and its settings; chunks that are cut as ever are called as ever."""
        more = [f"overlap={self.overlap}"] * (self.overlap > 0) + [f"cut={self.cut}"] * (self.cut != "tokens")
        return ",".join([self.kind, f"window={self.window}", *more])

    def chunks(self, model: SentenceTransformer, text: str) -> list[str]:
        """The chunks of a text."""
        if self.cut == "tokens" and not self.overlap:
            return windows(model, text, self.window)
        places = token_places(model, text)
        starts = [place[0] for place in places]
        spans = self._by_sentence(text, starts) if self.cut == "sentences" else self.by_token(len(places))
        ends = [*starts[1:], len(text)]
        return [text[starts[first] : ends[last - 1]] for first, last in spans] or [text]

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


def token_places(model: SentenceTransformer, text: str) -> list[Span]:
    """Where the tokens of a text begin and end, those that stand for no character left out."""
    options: dict[str, Any] = {"add_special_tokens": False, "truncation": False, "verbose": False}
    tokens = model.tokenizer(text, return_offsets_mapping=True, **options)
    return [place for place in tokens["offset_mapping"] if place[1] > place[0]]
