"""The model calibrated."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sentence_transformers import SentenceTransformer

from evenspan.calibration import Calibration
from evenspan.encoding import Encoder
from evenspan.errors import UnsupportedModelError
from evenspan.evaluation.methods.base import Method, Vectors
from evenspan.models.calibrating import calibrated
from evenspan.models.inspecting import inspect_model
from evenspan.progress import ProgressBar


@dataclass(frozen=True)
class Calibrated(Method):
    """Attention calibration."""

    calibration: Calibration = Calibration()

    def check(self, model: SentenceTransformer, prompt: str | None = None) -> None:  # noqa: ARG002, D102
        inspection = inspect_model(model, self.calibration)
        if not inspection.calibratable:
            raise UnsupportedModelError(inspection.reason)

    @property
    def name(self) -> str:  # noqa: D102
        return str(self.calibration)

    def encode(self, encoder: Encoder, texts: Sequence[str], bar: ProgressBar | None = None) -> Vectors:  # noqa: D102
        with calibrated(encoder.model, self.calibration):
            return list(encoder.encode(texts, bar=bar)[:, None])
