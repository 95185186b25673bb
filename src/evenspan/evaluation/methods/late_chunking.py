"""A vector for each chunk, out of one pass over the whole passage."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from sentence_transformers import SentenceTransformer
from torch import Tensor

from evenspan.encoding import Encoder
from evenspan.evaluation.methods.base import Chunked, Vectors
from evenspan.evaluation.methods.token_average import check_token_embeddings
from evenspan.models.calibrating import uncalibrated
from evenspan.progress import ProgressBar


@dataclass(frozen=True)
class LateChunking(Chunked):
    """Late chunking (Günther et al., 2024, arXiv 2409.04701): the tokens of each chunk averaged, the best chunk counts.

    Every token has seen the whole passage, as far as the model reads it. Chunks are cut after so many tokens.
    """

    kind: ClassVar[str] = "late-chunking"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.cut != "tokens":
            raise ValueError("late-chunking is cut after tokens, not between sentences.")

    @property
    def name(self) -> str:
        """With its overlap in any case: without it is what earlier versions called the average of all tokens."""
        return f"{self.kind},window={self.window},overlap={self.overlap}"

    def check(self, model: SentenceTransformer, prompt: str | None = None) -> None:  # noqa: ARG002, D102
        check_token_embeddings(self.kind, model)

    def encode(self, encoder: Encoder, texts: Sequence[str], bar: ProgressBar | None = None) -> Vectors:  # noqa: D102
        chunks: list[NDArray[np.float32]] = []

        def pool(token_embeddings: list[Tensor]) -> Tensor:
            """Keeps the chunks of each text, and hands on where they are kept: an encoder gives one row for each text."""
            first = len(chunks)
            for tokens in token_embeddings:
                means = [tokens[start:end].float().mean(0) for start, end in self.chunker.by_token(len(tokens))]
                chunks.append(torch.stack(means).cpu().numpy())
            return torch.arange(first, len(chunks), dtype=torch.float64)[:, None]

        options: dict[str, Any] = {"batch_tokens": encoder.batch_tokens, "batch_size": encoder.batch_size}
        plain = Encoder(encoder.model, role=encoder.role, prompt=encoder.prompt, unit=False, **options)
        with uncalibrated(encoder.model):
            places = plain.encode(texts, bar=bar, pool=pool)
        return [chunks[int(place)] for place in places[:, 0]]
