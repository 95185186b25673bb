"""A vector for each window of tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from evenspan.encoding import Encoder
from evenspan.evaluation.methods.base import Vectors, Windowed
from evenspan.progress import ProgressBar


@dataclass(frozen=True)
class ChunksMax(Windowed):
    """A vector for each window of tokens, scored by the best one: what most people run."""

    kind: ClassVar[str] = "chunks-max"

    def encode(self, encoder: Encoder, texts: Sequence[str], bar: ProgressBar | None = None) -> Vectors:  # noqa: D102
        return self.encode_windows(encoder, texts, bar)
