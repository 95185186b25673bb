"""Confidence intervals and paired tests, by scipy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Values = NDArray[np.float64]
Interval = tuple[float, float]
Statistic = Callable[[list[Values]], Values]


def means(groups: list[Values]) -> Values:
    """The mean of each group of (resampled) values.  # (groups, ...)"""
    return np.stack([values.mean(axis=-1) for values in groups])


def bootstrap_interval(groups: Sequence[Values], statistic: Statistic, resamples: int, seed: int) -> Interval | None:
    """The 95 % percentile bootstrap interval of a statistic of one or more groups of queries.

    Queries are resampled within their group. None where a group has fewer than two queries.
    """
    from scipy import stats

    if resamples < 1 or min(len(values) for values in groups) < 2:
        return None

    def vectorised(*samples: Values, axis: int = -1) -> Values:
        return statistic([np.moveaxis(values, axis, -1) for values in samples])

    options: dict[str, Any] = {"n_resamples": resamples, "method": "percentile", "rng": np.random.default_rng(seed)}
    interval = stats.bootstrap(tuple(groups), vectorised, vectorized=True, batch=100, **options).confidence_interval
    return float(interval.low), float(interval.high)


def paired_p_value(values: Values, others: Values) -> float | None:
    """The p-value of a paired t-test; None where there is nothing to compare."""
    from scipy import stats

    difference = values - others
    if len(values) < 2 or (np.ptp(difference) == 0 and difference[0] != 0):
        return None  # one value, or the same difference every time: a t-test says nothing
    if not difference.any():
        return 1.0
    return float(stats.ttest_rel(values, others).pvalue)


def paired_interval(
    groups: Sequence[Values], others: Sequence[Values], statistic: Statistic, resamples: int, seed: int
) -> Interval | None:
    """The 95 % bootstrap interval of `statistic(groups) - statistic(others)`, both over the same resampled queries."""
    pairs = [np.stack(pair) for pair in zip(groups, others, strict=True)]  # each (2, queries)
    places = [np.arange(pair.shape[1], dtype=np.float64) for pair in pairs]

    def difference(samples: list[Values]) -> Values:
        drawn = [pair[:, places.astype(np.int64)] for pair, places in zip(pairs, samples, strict=True)]
        return statistic([values[0] for values in drawn]) - statistic([values[1] for values in drawn])

    return bootstrap_interval(places, difference, resamples, seed)
