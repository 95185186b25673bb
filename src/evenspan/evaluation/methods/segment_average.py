"""Semantic chunks, averaged: what the paper compares with."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, ClassVar

from sentence_transformers import SentenceTransformer

from evenspan.corpus.chunks import Chunker
from evenspan.encoding import Encoder
from evenspan.errors import require_extra
from evenspan.evaluation.methods.base import Method, Vectors, average, encode_pieces
from evenspan.models.calibrating import uncalibrated
from evenspan.models.loading import MINIATURE, load
from evenspan.models.reading import room_for_text
from evenspan.progress import ProgressBar

# Chonkie's own, and those of scripts without spaces, which it would not cut at all.
_DELIMITERS = [". ", "! ", "? ", "\n", "。", "！", "？"]


@dataclass(frozen=True)
class SegmentAverage(Method):
    """Segment-embed-average as in the paper: Chonkie's semantic chunks, embedded one by one, averaged.

    Args:
        embedder: what the chunker compares sentences with: a model folder or hub name, or `"self"` for the model under
            test. The paper names neither embedder nor threshold; all three are Chonkie's own defaults.
        threshold: of Chonkie's `SemanticChunker`.
        chunk_size: most tokens in a chunk, by the embedder's tokenizer.
    """

    kind: ClassVar[str] = "segment-average"
    embedder: str = "minishlab/potion-base-32M"
    threshold: float = 0.8
    chunk_size: int = 2048

    def __post_init__(self) -> None:
        if not 0 < self.threshold < 1:  # as Chonkie has it
            raise ValueError(f"The segment threshold must be greater than 0 and less than 1, not {self.threshold}.")
        if self.chunk_size < 1:
            raise ValueError(f"chunk_size must be at least 1, not {self.chunk_size}.")

    def check(self, model: SentenceTransformer, prompt: str | None = None) -> None:  # noqa: ARG002, D102
        require_extra("eval", "segment-average", "chonkie")

    def remarks(self) -> tuple[str, ...]:  # noqa: D102
        import chonkie

        known = inspect.signature(chonkie.SemanticChunker).parameters
        ours = ("embedding_model", "threshold", "chunk_size", "delim", "kwargs")
        rest = ", ".join(f"{name} {value.default}" for name, value in known.items() if name not in ours)
        return (
            f"segment-average: Chonkie {chonkie.__version__}, embedder {self.embedder}, threshold {self.threshold}, chunk_size "
            f"{self.chunk_size}, delimiters {' '.join(map(repr, _DELIMITERS))}, the rest its defaults ({rest})",
        )

    def encode(self, encoder: Encoder, texts: Sequence[str], bar: ProgressBar | None = None) -> Vectors:  # noqa: D102
        model = encoder.model
        chunker = self._chunker(model)
        cutter = Chunker(room_for_text(model, encoder.prompt), cut="tokens")
        with uncalibrated(model):  # the chunker may compare with this very model
            chunks = [chunker.chunk(text) for text in texts]
        # A chunk is as long as the chunker's own tokenizer counts; what the model would cut off becomes another piece.
        pieces = [
            list(chain(*cutter.chunks(model, [chunk.text for chunk in group]))) or [text]
            for text, group in zip(texts, chunks, strict=True)
        ]
        return [average(vectors, model) for vectors in encode_pieces(encoder, pieces, bar)]

    def _chunker(self, model: SentenceTransformer) -> Any:
        from chonkie import SemanticChunker
        from chonkie.embeddings import SentenceTransformerEmbeddings

        embedder: Any = self.embedder
        if self.embedder == "self":
            embedder = SentenceTransformerEmbeddings(model)
        elif Path(self.embedder).is_dir() or self.embedder.startswith(MINIATURE):
            embedder = SentenceTransformerEmbeddings(load(self.embedder))
        try:
            return SemanticChunker(embedder, threshold=self.threshold, chunk_size=self.chunk_size, delim=_DELIMITERS)
        except Exception as error:
            raise OSError(
                f"Cannot load the chunker's embedder {self.embedder!r}: {error}. Name a local SentenceTransformer folder, "
                "or 'self' for the model under test."
            ) from error
