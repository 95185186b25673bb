"""Token embeddings of the whole passage, averaged by window."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Dense
from torch import Tensor

from evenspan.encoding import Encoder
from evenspan.evaluation.methods.base import Vectors, Windowed
from evenspan.models.calibrating import uncalibrated
from evenspan.progress import ProgressBar


@dataclass(frozen=True)
class LateChunking(Windowed):
    """One pass over the whole passage; its token embeddings are averaged per window, then the windows."""

    kind: ClassVar[str] = "late-chunking"

    def check(self, model: SentenceTransformer, prompt: str | None = None) -> None:  # noqa: ARG002, D102
        if model.truncate_dim is not None or any(isinstance(module, Dense) for module in model):
            raise ValueError(
                "late-chunking averages token embeddings: it cannot be used with truncate_dim or a Dense module."
            )

    def encode(self, encoder: Encoder, texts: Sequence[str], bar: ProgressBar | None = None) -> Vectors:  # noqa: D102
        with uncalibrated(encoder.model):
            return list(encoder.encode(texts, bar=bar, pool=self._pool)[:, None])

    def _pool(self, token_embeddings: list[Tensor]) -> Tensor:
        pooled = [
            torch.stack([part.float().mean(0) for part in torch.split(tokens, self.window)]).mean(0)
            for tokens in token_embeddings
        ]
        return torch.nn.functional.normalize(torch.stack(pooled), dim=1)
