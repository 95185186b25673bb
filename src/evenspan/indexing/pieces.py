"""What is encoded of a document: all of it, or its chunks, a row each.

The rows of a document lie side by side in its shard and share its id. The first one stands for all of them: they are
committed, replaced and removed together.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from evenspan.corpus.chunks import Chunker, Span
from evenspan.corpus.terms import terms
from evenspan.encoding import Encoder
from evenspan.indexing.columns import CHUNK, END, START
from evenspan.indexing.layout import FEWEST_TOKENS
from evenspan.indexing.settings import IndexSettings
from evenspan.models.features import Ids
from evenspan.models.reading import room_for_text

MOST_CHUNKS = 1 << 19  # of a document, and of a shard before its last one
_WORD_CHARACTERS, _LONGEST_WORD = 200_000, 200  # what PostgreSQL takes of a row, and of a word, with room to spare


class Piece(NamedTuple):
    """A part of a document that gets a vector."""

    span: Span | None  # None for all of it
    tokens: int
    ids: Ids | None  # of its tokens, those that the model reads; None if it takes nothing but texts


class Cutter:
    """Cuts documents as an index wants them, and counts their tokens."""

    def __init__(self, encoder: Encoder, settings: IndexSettings) -> None:
        self._encoder = encoder
        self.max_tokens, self.full_text = encoder.max_tokens, settings.full_text
        self._chunker = None
        if settings.chunk_tokens is not None:
            room = room_for_text(encoder.model, settings.document_prompt)
            if not FEWEST_TOKENS <= settings.chunk_tokens <= room:
                raise ValueError(
                    f"chunk_tokens must be between {FEWEST_TOKENS} and {room}, the tokens of text that the model reads, "
                    f"not {settings.chunk_tokens}."
                )
            self._chunker = Chunker(settings.chunk_tokens, settings.overlap)
            # One of its own: that of a model is set anew by each of its calls, in other threads as well.
            self._tokenizer = copy.deepcopy(encoder.model.tokenizer)

    def pieces(self, texts: Sequence[str]) -> list[tuple[Piece, ...]]:
        """What is encoded of each text."""
        if self._chunker is None:
            return [(piece,) for piece in self._counted(texts, [None] * len(texts))]
        spans = list(self._chunker.spans(self._tokenizer, texts))
        cut = [text[start:end] for text, own in zip(texts, spans, strict=True) for start, end in own]
        together = iter(self._counted(cut, [span for own in spans for span in own]))
        return [tuple(next(together) for _ in own) for own in spans]

    def _counted(self, texts: Sequence[str], spans: Sequence[Span | None]) -> Iterable[Piece]:
        tokenized = self._encoder.tokenize(texts)
        counts = self._encoder.count_tokens(texts) if tokenized is None else tokenized.counts
        ids: Sequence[Ids | None] = [None] * len(texts) if tokenized is None else tokenized.ids
        return map(Piece, spans, counts, ids)


def part(text: str, span: Span | None) -> str:
    """The text of a piece."""
    return text if span is None else text[span[0] : span[1]]


def piece_columns(pieces: Sequence[Sequence[Piece]]) -> Iterator[tuple[str, Any]]:
    """Which chunk each row is, and where it lies in its document; nothing for whole documents."""
    import pyarrow

    if any(piece.span is None for own in pieces for piece in own):
        return
    spans = [piece.span for own in pieces for piece in own if piece.span is not None]
    yield CHUNK, pyarrow.array([number for own in pieces for number in range(len(own))], pyarrow.int32())
    for name, edge in ((START, 0), (END, 1)):
        yield name, pyarrow.array([span[edge] for span in spans], pyarrow.int64())


def searched_words(text: str) -> str:
    """What a full-text index keeps of a text."""
    return " ".join(word[:_LONGEST_WORD] for word in terms(text[:_WORD_CHARACTERS]))[:_WORD_CHARACTERS]
