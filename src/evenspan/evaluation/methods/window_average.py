"""Windows of tokens, averaged."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from evenspan.encoding import Encoder
from evenspan.evaluation.methods.base import Vectors, Windowed, average
from evenspan.progress import ProgressBar


@dataclass(frozen=True)
class WindowAverage(Windowed):
    """Windows of a fixed number of tokens, embedded one by one, averaged."""

    kind: ClassVar[str] = "window-average"

    def encode(self, encoder: Encoder, texts: Sequence[str], bar: ProgressBar | None = None) -> Vectors:  # noqa: D102
        return [average(vectors, encoder.model) for vectors in super().encode(encoder, texts, bar)]
