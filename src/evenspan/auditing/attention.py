"""See where pooling tokens look while a model encodes, from their own rows: no matrix of attention is ever made."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Transformer
from torch import Tensor

from evenspan.auditing.schema import Attention, LayerAttention
from evenspan.calibration import Calibration
from evenspan.core.baskets import CONTENT, FIRST, POOLED, Baskets
from evenspan.core.calls import CalibratedCalls
from evenspan.core.install import attached, overridden
from evenspan.models.pipeline import Pipeline

_PERCENTILES = (5, 25, 50, 75, 95)

Masses = dict[int, NDArray[np.float32]]  # of each layer  # (heads, rows, 2 + baskets)


class Observer:
    """Adds up what the pooling tokens of many batches look at, layer by layer.

    Only layers whose pooling token sees the whole passage are looked at. Plain attention is looked at in the baskets that
    `cut` makes. In a mean-pooled model all tokens are pooled: what is added up are their means. Raises as `Pipeline.of` does
    for a model that has no pooling token or no attention that is known.
    """

    def __init__(self, model: SentenceTransformer, calibration: Calibration | None, cut: Calibration) -> None:
        self.pipeline = Pipeline.of(model)
        self.layers = self.pipeline.layers()
        self.calls = CalibratedCalls(
            calibration or replace(cut, strength=0.0),
            self.pipeline.pooling_token,
            () if calibration is None else self.layers.chosen_by(calibration),
            closing_token=self.pipeline.closing_token,
        )
        self.every_row = self.pipeline.pooling_token == "mean"
        self._attempt: list[tuple[Masses, NDArray[np.bool_]]] = []
        self._self_masses: dict[int, list[NDArray[np.float32]]] = {layer: [] for layer in self.layers.full}
        self._sums: NDArray[np.float64] = np.zeros((len(self.layers.full), 0))  # (layers, 2 + baskets)
        self._documents: NDArray[np.int64] = np.zeros(0, dtype=np.int64)  # that have each basket  # (2 + baskets,)

    @contextmanager
    def watching(self) -> Iterator[None]:
        """While this lasts, every document that the model encodes is looked at, and calibrated if that was asked for.

        What was seen counts if it ends well: who runs out of memory begins again.
        """
        self._attempt = []
        with attached(self.layers.calibratable), overridden(self.pipeline.transformer, self._forward):
            yield
        for masses, present in self._attempt:
            self._add(masses, present)

    def _forward(self, features: dict[str, Any], **_: Any) -> dict[str, Any]:
        masses: Masses = {}
        batch: list[Baskets] = []  # the same for every layer

        def record(layer: int, of_layer: Tensor, baskets: Baskets) -> None:
            masses[layer] = of_layer.float().cpu().numpy()
            batch[:] = [baskets]

        plain = functools.partial(Transformer.forward, self.pipeline.transformer, features)
        pooled = self.pipeline.pooled_places(features)
        output: dict[str, Any] = self.calls.run(plain, features, pooled=pooled, recorder=record)
        missing = [layer for layer in self.layers.full if layer not in masses]
        if missing:
            raise RuntimeError(f"The attention of layers {missing} was not seen: this model drops keyword arguments.")
        self._attempt.append((masses, batch[0].present.cpu().numpy()))
        return output

    def _add(self, masses: Masses, present: NDArray[np.bool_]) -> None:
        """Take in a batch: the masses of each layer, and which baskets exist.  # (rows, 2 + baskets)"""
        means = np.stack([masses[layer].mean(axis=0) for layer in self.layers.full])  # (layers, rows, 2 + baskets)
        real = present[:, POOLED] & np.isfinite(means).all(axis=(0, 2))
        for layer, parts in self._self_masses.items():
            own = masses[layer][:, real, POOLED]
            parts.append((own + masses[layer][:, real, FIRST] if self.every_row else own).ravel())
        self._sums = _sum(self._sums, (means[:, real] * present[real]).sum(axis=1))
        self._documents = _sum(self._documents, present[real].sum(axis=0))

    def attention(self) -> Attention | None:
        """What was seen; None if nothing was."""
        documents = np.trim_zeros(self._documents[CONTENT:], "b")
        if not documents.size:
            return None
        layers = []
        for (layer, parts), sums in zip(self._self_masses.items(), self._sums, strict=True):
            own = np.concatenate(parts)
            layers.append(
                LayerAttention(
                    layer=layer,
                    calibrated=layer in self.calls.layers,
                    self_mass=tuple(np.percentile(own, _PERCENTILES).tolist()),
                    mean_self_mass=float(own.mean()),
                    first_mass=float(sums[FIRST] / self._documents[FIRST]) if self._documents[FIRST] else None,
                    baskets=tuple((sums[CONTENT : CONTENT + documents.size] / documents).tolist()),
                )
            )
        size = self.calls.calibration.basket_size
        return Attention(size, tuple(documents.tolist()), tuple(layers), self.every_row)


def _sum(*parts: NDArray[Any]) -> NDArray[Any]:
    """The sum of arrays whose last axes may differ in length."""
    width = max(part.shape[-1] for part in parts)
    padded = [np.pad(part, [(0, 0)] * (part.ndim - 1) + [(0, width - part.shape[-1])]) for part in parts]
    total: NDArray[Any] = np.sum(padded, axis=0)
    return total
