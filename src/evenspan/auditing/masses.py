"""The masses that pooling tokens spread, added up over batches."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evenspan.auditing.schema import Attention, LayerAttention
from evenspan.core.baskets import CONTENT, FIRST, POOLED

_PERCENTILES = (5, 25, 50, 75, 95)


class Totals:
    """What was seen so far in some layers."""

    def __init__(self, layers: Sequence[int]) -> None:
        self.self_masses: dict[int, list[NDArray[np.float32]]] = {index: [] for index in layers}
        self.sums: dict[int, NDArray[np.float64]] = {index: np.zeros(0) for index in layers}
        self.firsts: dict[int, float] = dict.fromkeys(layers, 0.0)
        self.documents: NDArray[np.int64] = np.zeros(0, dtype=np.int64)  # that have each basket
        self.with_first = 0

    def add(self, masses: Mapping[int, NDArray[np.float32]], present: NDArray[np.bool_]) -> None:
        """Take in a batch: the masses of each layer (heads, rows, 2 + baskets), and which baskets exist."""
        finite = [np.isfinite(of_layer).all(axis=(0, 2)) for of_layer in masses.values()]
        real = present[:, POOLED] & np.logical_and.reduce(finite)
        content, first = present[real][:, CONTENT:], present[real][:, FIRST]
        self.documents = _sum(self.documents, content.sum(axis=0))
        self.with_first += int(first.sum())
        for index, of_layer in masses.items():
            rows = of_layer[:, real]
            self.self_masses[index].append(rows[..., POOLED].ravel())
            self.firsts[index] += float((rows[..., FIRST].mean(axis=0) * first).sum())
            self.sums[index] = _sum(self.sums[index], (rows[..., CONTENT:].mean(axis=0) * content).sum(axis=0))

    def join(self, other: Totals) -> None:
        """Take in what another has seen."""
        self.documents = _sum(self.documents, other.documents)
        self.with_first += other.with_first
        for index, parts in other.self_masses.items():
            self.self_masses[index] += parts
            self.firsts[index] += other.firsts[index]
            self.sums[index] = _sum(self.sums[index], other.sums[index])

    def attention(self, basket_size: int, calibrated: Collection[int]) -> Attention | None:
        """The figures of each layer; None if no document was seen."""
        if not self.documents.any():
            return None
        baskets = int(self.documents.nonzero()[0].max()) + 1
        layers = []
        for index, parts in self.self_masses.items():
            own = np.concatenate(parts)
            layers.append(
                LayerAttention(
                    layer=index,
                    calibrated=index in calibrated,
                    self_mass=tuple(float(value) for value in np.percentile(own, _PERCENTILES)),
                    mean_self_mass=float(own.mean()),
                    first_mass=self.firsts[index] / self.with_first if self.with_first else None,
                    baskets=tuple(float(value) for value in self.sums[index][:baskets] / self.documents[:baskets]),
                )
            )
        return Attention(basket_size, tuple(int(count) for count in self.documents[:baskets]), tuple(layers))


def _sum(first: NDArray[Any], second: NDArray[Any]) -> NDArray[Any]:
    """The sum of two rows of different lengths."""
    total = np.zeros(max(len(first), len(second)), dtype=np.result_type(first, second, np.int64))
    total[: len(first)] += first
    total[: len(second)] += second
    return total
