"""The model as it is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from evenspan.encoding import Encoder
from evenspan.evaluation.methods.base import Method, Vectors
from evenspan.models.calibrating import uncalibrated
from evenspan.progress import ProgressBar


@dataclass(frozen=True)
class Plain(Method):
    """No calibration: the model as it is published."""

    kind: ClassVar[str] = "none"

    def encode(self, encoder: Encoder, texts: Sequence[str], bar: ProgressBar | None = None) -> Vectors:  # noqa: D102
        with uncalibrated(encoder.model):
            return list(encoder.encode(texts, bar=bar)[:, None])
