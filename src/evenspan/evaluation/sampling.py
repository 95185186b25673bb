"""Scores of queries by the documents that they are about, and resamples of them."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

Values = NDArray[np.float64]

TAIL = 0.025
NORMAL = 1.959963984540054  # standard errors of a normal distribution that leave so much on each side
_BATCH = 100  # resamples at a time
_FEWEST = 1.1  # effective units: a single one has no degrees of freedom


@dataclass(frozen=True)
class Sample:
    """Scores of queries in parts (position groups, sets, or all of them as one), summed by the unit they belong to.

    A unit is what is resampled: a document with all its queries. Scores have one side, or two that are compared.
    """

    sums: Values  # (units, parts, sides)
    counts: Values  # queries  # (units, parts)
    strata: tuple[NDArray[np.int64], ...]  # units that stand for each other

    @classmethod
    def of(cls, parts: Sequence[Values], units: Sequence[Sequence[Hashable]]) -> Sample:
        """From the scores of each part, (queries,) or (queries, sides), and the units of its queries.

        Where every unit lies in one part units are drawn within their part, otherwise all together.
        """
        places, codes = codes_of([unit for of_part in units for unit in of_part])
        owners = np.split(codes, np.cumsum([len(of_part) for of_part in units])[:-1])
        sides = parts[0].reshape(len(parts[0]), -1).shape[1]
        sums, counts = np.zeros((len(places), len(parts), sides)), np.zeros((len(places), len(parts)))
        for part, (values, owner) in enumerate(zip(parts, owners, strict=True)):
            np.add.at(sums[:, part], owner, values.reshape(len(values), -1))
            np.add.at(counts[:, part], owner, 1.0)
        within = [np.flatnonzero(column) for column in counts.T]
        apart = sum(map(len, within)) == len(places)
        return cls(sums, counts, tuple(within) if apart else (np.arange(len(places)),))

    @property
    def units(self) -> int:
        """Units of the part that has fewest."""
        return int((self.counts > 0).sum(axis=0).min())

    @property
    def means(self) -> Values:
        """The mean of each part.  # (parts, sides)"""
        means: Values = self.sums.sum(axis=0) / self.counts.sum(axis=0)[:, None]
        return means

    def resampled(self, resamples: int, seed: int) -> Values:
        """The means of each part over units drawn with replacement.  # (parts, sides, resamples)

        A part of which nothing was drawn is NaN there.
        """
        generator, means = np.random.default_rng(seed), []
        for start in range(0, resamples, _BATCH):
            batch = min(_BATCH, resamples - start)
            sums, counts = np.zeros((batch, *self.sums.shape[1:])), np.zeros((batch, self.counts.shape[1]))
            for members in self.strata:
                size = len(members)
                drawn = generator.integers(0, size, (batch, size)) + size * np.arange(batch)[:, None]
                weights = np.bincount(drawn.ravel(), minlength=batch * size).reshape(batch, size).astype(np.float64)
                sums += (weights @ self.sums[members].reshape(size, -1)).reshape(sums.shape)
                counts += weights @ self.counts[members]
            with np.errstate(invalid="ignore"):
                means.append(sums / counts[:, :, None])
        return np.moveaxis(np.concatenate(means), 0, -1)

    def without_each(self) -> Values:
        """The means of each part without one of the units.  # (parts, sides, units)"""
        counts = self.counts.sum(axis=0) - self.counts
        with np.errstate(invalid="ignore"):
            means = (self.sums.sum(axis=0) - self.sums) / counts[:, :, None]
        return np.moveaxis(means, 0, -1)

    @cached_property
    def reach(self) -> float:
        """How many standard errors of the bootstrap a 95 % interval reaches to each side.

        Resamples of few units vary too little, by (n − 1) / n, and have tails that are too thin: where units have several
        queries it is as far as Hesterberg's expanded percentile interval (2015, arXiv 1411.5279) goes, else as usual.
        """
        from scipy import stats

        if self.counts.sum() == len(self.counts):
            return NORMAL
        smallest = min(self._effective)
        return float(np.sqrt(smallest / (smallest - 1)) * stats.t.isf(TAIL, self.freedom))

    @property
    def freedom(self) -> float:
        """Degrees of freedom: effective units, less one for each set of them that is drawn by itself."""
        return sum(units - 1 for units in self._effective)

    @property
    def _effective(self) -> list[float]:
        """How many units of one size tell as much (Kish), of each set that is drawn by itself: all, if they are alike."""
        sizes = [self.counts[members].sum(axis=1) for members in self.strata]
        return [max(float(of.sum() ** 2 / np.square(of).sum()), _FEWEST) for of in sizes]


def codes_of(keys: Sequence[Hashable]) -> tuple[list[Any], NDArray[np.int64]]:
    """Different keys in the order in which they come, and the place of each among them."""
    places: dict[Hashable, int] = {}
    codes = np.array([places.setdefault(key, len(places)) for key in keys])
    return list(places), codes
