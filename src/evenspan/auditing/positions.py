"""How much a position counts, apart from what stands there.

Every document is encoded with its segments in an order drawn at random, and compared with the vectors of its segments. A
segment's similarity to the whole is what its content makes plus what its position makes. Any content may stand anywhere, so
that the mean over documents at a position is what the position makes, and chance. Some of that chance is taken out: a
segment that is like the others of its document is like the whole of it wherever it stands.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from evenspan.auditing.schema import Bias, Degree, Estimate, Representation

Array = NDArray[np.float64]
RESAMPLES = 1000
# In standard deviations of what content makes: what is less is not called a bias, what is more is called strong.
_SMALLEST, _STRONG = 0.1, 0.5
_NORMAL = 1.959964  # the 97.5th percentile of the normal distribution


def orders(documents: int, segments: int, versions: int, seed: int) -> NDArray[np.int64]:
    """Which segment stands at each position: shuffled, and from version to version everything moves on by one."""
    random = np.random.default_rng(seed)
    order = np.empty((documents, versions, segments), dtype=np.int64)
    for document, version in np.ndindex(documents, versions):
        if version % segments == 0:
            shuffled = random.permutation(segments)
        order[document, version] = np.roll(shuffled, version)
    return order


@dataclass(frozen=True)
class Effects:
    """Everything that is estimated from similarities, for the sample and for resampled ones."""

    positions: Array  # the similarity at each, of a segment of average content  # (1 + resamples, positions)
    spread: Array  # the standard deviation of what content makes, inside of a document  # (1 + resamples,)
    documents: int

    @property
    def slope(self) -> Array:
        """The change over the whole document, by a straight line.  # (1 + resamples,)"""
        place = np.linspace(0.0, 1.0, self.positions.shape[1]) - 0.5
        slope: Array = self.positions @ place / (place @ place)
        return slope

    def end_effect(self, place: Literal[0, -1]) -> Array:
        """How much more the first or the last position is reflected than those in between.  # (1 + resamples,)"""
        inner = self.positions[:, 1:-1] if self.positions.shape[1] > 2 else self.positions
        effect: Array = self.positions[:, place] - inner.mean(axis=1)
        return effect


def likeness(segments: NDArray[np.float32]) -> Array:
    """The similarity of each segment with the others of its document together.  # (documents, segments)"""
    vectors = segments.astype(np.float64)  # (documents, segments, dimensions), of length 1
    others = vectors.sum(axis=1, keepdims=True) - vectors
    others /= np.maximum(np.linalg.norm(others, axis=-1, keepdims=True), 1e-12)
    alike: Array = np.einsum("dsx,dsx->ds", vectors, others)
    return alike


def effects(similarities: Array, order: NDArray[np.int64], alike: Array, seed: int) -> Effects:
    """Estimate by least squares: an effect of each position, and one of how much a segment is like the others.

    Args:
        similarities: of the segment at each position with the whole.  # (documents, versions, positions)
        order: which segment that is.
        alike: what `likeness` says of each segment.  # (documents, segments)
        seed: of the bootstrap over documents.
    """
    documents, versions, count = similarities.shape
    rows = documents * versions
    y = similarities - similarities.mean(axis=2, keepdims=True)
    x = np.take_along_axis(np.broadcast_to(alike[:, None], order.shape), order, axis=2)
    x = x - x.mean(axis=2, keepdims=True)
    random = np.random.default_rng(seed)
    resampled = random.multinomial(documents, np.full(documents, 1 / documents), RESAMPLES)
    weights = np.vstack([np.ones(documents), resampled])  # (1 + resamples, documents)
    mean_y, mean_x = weights @ y.sum(axis=1) / rows, weights @ x.sum(axis=1) / rows  # (1 + resamples, positions)
    both = weights @ (x * y).sum(axis=(1, 2)) - rows * (mean_x * mean_y).sum(axis=1)
    spread_x = weights @ (x * x).sum(axis=(1, 2)) - rows * (mean_x * mean_x).sum(axis=1)
    factor = np.where(spread_x > 1e-9 * rows, both / np.maximum(spread_x, 1e-12), 0.0)
    positions = mean_y - factor[:, None] * mean_x
    mean = weights @ similarities.mean(axis=(1, 2)) / documents
    content = y - positions[0]  # what position does not explain
    spread = np.sqrt(weights @ (content * content).sum(axis=(1, 2)) / (rows * (count - 1)))
    return Effects(positions + mean[:, None], spread, documents)


def representation(estimated: Effects) -> Representation:
    """The figures with their intervals, and what they say."""
    first, last, documents = estimated.end_effect(0), estimated.end_effect(-1), estimated.documents
    spread = np.maximum(estimated.spread, 1e-5)  # less is rounding
    figures = (estimated.slope, first, last, estimated.slope / spread, (first + last) / 2 / spread)
    slope, primacy, recency, relative, ends = (estimate(values, documents) for values in figures)
    bias, degree = _verdict(relative, ends, primacy, recency)
    positions = tuple(estimate(values, documents) for values in estimated.positions.T)
    return Representation(documents, positions, slope, primacy, recency, relative, bias, degree)


def estimate(values: Array, documents: int) -> Estimate:
    """The sample's own value, with the middle 95 % of the resampled ones, widened for what few documents do not show."""
    low, high = np.percentile(values[1:], [2.5, 97.5]) - values[0]
    wider = _student(documents - 1) / _NORMAL * math.sqrt(documents / (documents - 1))
    return Estimate(float(values[0]), (float(values[0] + wider * low), float(values[0] + wider * high)))


def _student(freedom: int) -> float:
    """The 97.5th percentile of Student's t, by the first terms of its expansion; 0.1 % off at nine degrees of freedom."""
    z = _NORMAL
    return z + (z**3 + z) / (4 * freedom) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * freedom**2)


def _verdict(relative: Estimate, ends: Estimate, primacy: Estimate, recency: Estimate) -> tuple[Bias, Degree | None]:
    """Either one end shows more than the other, or both differ from the middle: whichever is larger."""
    slope = abs(relative.value) if _sign(relative) else 0.0
    bend = abs(ends.value) if _sign(primacy) == _sign(recency) != 0 else 0.0
    largest = max(slope, bend)
    if largest < _SMALLEST:
        return "none found", None
    degree: Degree = "strong" if largest >= _STRONG else "mild"
    if bend > slope:
        return ("both ends" if ends.value > 0 else "middle"), degree
    return ("primacy" if relative.value < 0 else "recency"), degree


def _sign(figure: Estimate) -> int:
    """Which side of 0 a figure is on, beyond noise; 0 if that is not known."""
    return int(figure.interval[0] > 0) - int(figure.interval[1] < 0)
