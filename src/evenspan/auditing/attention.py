"""See where pooling tokens look while a model encodes, from their own rows: no matrix of attention is ever made."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Transformer
from torch import Tensor

from evenspan.auditing.masses import Totals
from evenspan.auditing.schema import Attention
from evenspan.calibration import Calibration
from evenspan.core.baskets import Baskets
from evenspan.core.calls import CalibratedCalls
from evenspan.core.install import attached, overridden
from evenspan.models.pipeline import Pipeline


class Observer:
    """Adds up what the pooling tokens of many batches look at, layer by layer.

    Only layers whose pooling token sees the whole passage are looked at. Raises as `Pipeline.of` does for a model that
    has no pooling token or no attention that is known.
    """

    def __init__(self, model: SentenceTransformer, calibration: Calibration | None, basket_size: int) -> None:
        self.pipeline = Pipeline.of(model)
        self.layers = self.pipeline.layers()
        self.calls = CalibratedCalls(
            calibration or Calibration(strength=0.0, basket_size=basket_size),
            self.pipeline.pooling_token,
            () if calibration is None else self.layers.chosen_by(calibration),
        )
        self.seen = Totals(self.layers.full)
        self._part = Totals(self.layers.full)

    @contextmanager
    def watching(self) -> Iterator[None]:
        """While this lasts, every document that the model encodes is looked at, and calibrated if that was asked for.

        What was seen counts if it ends well: who runs out of memory begins again.
        """
        self._part = Totals(self.layers.full)
        with attached(self.layers.calibratable), overridden(self.pipeline.transformer, self._forward):
            yield
        self.seen.join(self._part)

    def _forward(self, features: dict[str, Any], **_: Any) -> dict[str, Any]:
        masses: dict[int, NDArray[np.float32]] = {}
        present: list[NDArray[np.bool_]] = []

        def record(layer: int, of_layer: Tensor, baskets: Baskets) -> None:
            masses[layer] = of_layer.float().cpu().numpy()
            if not present:
                present.append(baskets.present.cpu().numpy())

        plain = functools.partial(Transformer.forward, self.pipeline.transformer, features)
        pooled = self.pipeline.pooled_places(features)
        output: dict[str, Any] = self.calls.run(plain, features, pooled=pooled, recorder=record)
        missing = [layer for layer in self.layers.full if layer not in masses]
        if missing:
            raise RuntimeError(f"The attention of layers {missing} was not seen: this model drops keyword arguments.")
        self._part.add(masses, present[0])
        return output

    def found(self) -> Attention | None:
        """What was seen; None if nothing was."""
        return self.seen.attention(self.calls.calibration.basket_size, self.calls.layers)
