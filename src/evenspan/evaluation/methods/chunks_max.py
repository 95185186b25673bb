"""A vector for each chunk."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from sentence_transformers import SentenceTransformer

from evenspan.calibration import Calibration
from evenspan.encoding import Encoder
from evenspan.evaluation.methods.base import Chunked, Vectors, encode_pieces
from evenspan.evaluation.methods.calibrated import Calibrated
from evenspan.progress import ProgressBar


@dataclass(frozen=True)
class ChunksMax(Chunked):
    """A vector for each chunk, scored by the best one: what most people run. With a calibration, of each chunk."""

    kind: ClassVar[str] = "chunks-max"
    calibration: Calibration | None = None

    @property
    def name(self) -> str:  # noqa: D102
        return super().name if self.calibration is None else f"{super().name}+{self.calibration}"

    def check(self, model: SentenceTransformer, prompt: str | None = None) -> None:  # noqa: D102
        super().check(model, prompt)
        if self.calibration is not None:
            Calibrated(self.calibration).check(model, prompt)

    def encode(self, encoder: Encoder, texts: Sequence[str], bar: ProgressBar | None = None) -> Vectors:  # noqa: D102
        chunks = self.chunker.chunks(encoder.model, texts)
        return encode_pieces(encoder, chunks, bar, self.calibration)
