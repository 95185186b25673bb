"""Token embeddings of the whole passage, averaged."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Dense
from torch import Tensor

from evenspan.encoding import Encoder
from evenspan.evaluation.methods.base import Vectors, Windowed, compares_by_cosine
from evenspan.models.calibrating import uncalibrated
from evenspan.progress import ProgressBar


@dataclass(frozen=True)
class TokenAverage(Windowed):
    """One pass over the whole passage; its token embeddings are averaged per window, then the windows: mean pooling."""

    kind: ClassVar[str] = "token-average"

    def check(self, model: SentenceTransformer, prompt: str | None = None) -> None:  # noqa: ARG002, D102
        check_token_embeddings(self.kind, model)

    def encode(self, encoder: Encoder, texts: Sequence[str], bar: ProgressBar | None = None) -> Vectors:  # noqa: D102
        def pool(token_embeddings: list[Tensor]) -> Tensor:
            pooled = [
                torch.stack([part.float().mean(0) for part in torch.split(tokens, self.window)]).mean(0)
                for tokens in token_embeddings
            ]
            means = torch.stack(pooled)
            return torch.nn.functional.normalize(means, dim=1) if compares_by_cosine(encoder.model) else means

        with uncalibrated(encoder.model):
            return list(encoder.encode(texts, bar=bar, pool=pool)[:, None])


def check_token_embeddings(kind: str, model: SentenceTransformer) -> None:
    """Refuse a model whose vectors are not made of its token embeddings alone."""
    if model.truncate_dim is not None or any(isinstance(module, Dense) for module in model):
        raise ValueError(f"{kind} averages token embeddings: it cannot be used with truncate_dim or a Dense module.")
