"""Confidence intervals and paired tests by document: queries on one document are one observation, not many."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass

import numpy as np

from evenspan.evaluation.measures import lowest, position_sensitivity
from evenspan.evaluation.sampling import NORMAL, TAIL, Sample, Values, codes_of

Interval = tuple[float, float]
Statistic = Callable[[Values], Values]  # of the means of parts, along the first axis

_NEGLIGIBLE = 0.1  # of a standard error: what a bias may be without being taken out
_SMALLEST = 1e-6  # a mean of 0 has no logarithm


@dataclass(frozen=True)
class Bootstrap:
    """A sample and its resamples: intervals of 95 % of any statistic of the means of its parts, and tests."""

    sample: Sample
    means: Values  # (parts, sides, resamples)

    @classmethod
    def of(cls, sample: Sample, resamples: int, seed: int) -> Bootstrap | None:
        """None without resamples, where a part has fewer than two units, or where hardly any resample has all parts."""
        if not resamples or sample.units < 2:
            return None
        means = sample.resampled(resamples, seed)
        return cls(sample, means) if np.isfinite(means).all(axis=(0, 1)).sum() > 1 else None

    def interval(self, statistic: Statistic) -> Interval:
        """Of a smooth statistic of the first side."""
        return self._percentiles(statistic(self.means)[0], float(statistic(self.sample.means)[0]))

    def difference(self, statistic: Statistic) -> Interval:
        """Of a statistic of the first side minus that of the second, both over the same resampled units."""
        if statistic in (position_sensitivity, lowest):  # no smooth functions: percentiles of them do not cover
            return self._sensitivity_difference() if statistic is position_sensitivity else self._lowest_difference()
        (first, second), (own, other) = statistic(self.means), statistic(self.sample.means)
        return self._percentiles(first - second, float(own - other))

    def p_value(self, statistic: Statistic) -> float:
        """That a statistic is the same on both sides: its difference by the standard error of its resamples."""
        from scipy import stats

        (first, second), (own, other) = statistic(self.means), statistic(self.sample.means)
        error = _finite(first - second).std() * self.sample.reach / stats.t.isf(TAIL, self.sample.freedom)
        return (
            float(2 * stats.t.sf(abs(own - other) / error, self.sample.freedom)) if error > 0 else float(own == other)
        )

    def sensitivity_interval(self) -> Interval:
        """Of PSI of the first side, 1 − lowest / highest mean: the range that the ratios of all pairs of parts leave it.

        PSI is no smooth function where parts tie, and no percentile of resamples covers it there. As it is the largest over
        pairs of 1 − one / the other, it is at least the highest lower limit of these when all hold together, and at most the
        highest upper limit, each by itself. Lower limits are by the largest of the studentised differences of resamples.
        """
        drawn = np.log(np.maximum(self.means[:, 0], _SMALLEST))
        drawn = drawn[:, np.isfinite(drawn).all(axis=0)]
        least, own, most = (np.log(np.maximum(means[:, 0], _SMALLEST)) for means in self._possible())
        ratios, resampled = own[:, None] - own, drawn[:, None] - drawn  # (parts, parts), and resamples
        errors = resampled.std(axis=-1, ddof=1)
        deviations = (resampled - ratios[..., None]).reshape(-1, resampled.shape[-1])
        together = float(self._together(deviations, errors.ravel()))
        low, high = least[:, None] - most - together * errors, most[:, None] - least + self.sample.reach * errors
        psi = float(position_sensitivity(self.sample.means)[0])
        return min(1 - float(np.exp(-max(low.max(), 0.0))), psi), max(1 - float(np.exp(-high.max())), psi)

    def _sensitivity_difference(self) -> Interval:
        """Of PSI of the first side minus that of the second: the range over the pairs of parts that may be the extreme ones.

        PSI is mostly the noise of whatever parts are highest and lowest, the more so the smaller it is: where one side is
        even percentiles cover its difference in half of the cases, and call two even sides different that differ in level.
        """
        if len(self.means) == 1:
            return 0.0, 0.0
        drawn = np.maximum(self.means, _SMALLEST)
        drawn = drawn[..., np.isfinite(drawn).all(axis=(0, 1))]
        least, means, most = (np.maximum(of_parts, _SMALLEST) for of_parts in self._possible())
        pairs = ~np.eye(len(means), dtype=bool)
        apart, resampled = ((1 - of_parts[:, None] / of_parts)[pairs] for of_parts in (means, drawn))  # (pairs, sides)
        nearest, farthest = (1 - most[:, None] / least)[pairs], (1 - least[:, None] / most)[pairs]
        errors = resampled.std(axis=-1, ddof=1)
        together = self._together(resampled - apart[..., None], errors)  # (sides,)
        lowest = (nearest - together * errors).max(axis=0)
        extreme = farthest + together * errors >= lowest  # the pairs that may be the extreme ones of a side
        own = (resampled[:, 0] - resampled[:, 1]).std(axis=-1, ddof=1)

        def above(side: int, other: int) -> float:
            """How far one side may be above the other: its extreme pair above the same pair, or above all, of the other."""
            may = extreme[:, side]
            same = farthest[may, side] - nearest[may, other] + self.sample.reach * own[may]
            any_pair = farthest[may, side] + self.sample.reach * errors[may, side] - lowest[other]
            return float(np.minimum(same, any_pair).max())

        return -above(1, 0), above(0, 1)

    def _lowest_difference(self) -> Interval:
        """Of the lowest part of the first side minus that of the second: the range over the parts that may be the lowest ones.

        The lowest of one side is no higher than the part that is the lowest of the other: that part's difference bounds it, and
        so does what the lowest of a side is at most.
        """
        means, drawn = self.sample.means, self.means[..., np.isfinite(self.means).all(axis=(0, 1))]
        errors = drawn.std(axis=-1, ddof=1)  # (parts, sides)
        reach = self._together(drawn - means[..., None], errors) * errors
        most = (means + reach).min(axis=0)  # (sides,)
        may_be, least = means - reach <= most, means - self.sample.reach * errors
        apart, own = means[:, 0] - means[:, 1], (drawn[:, 0] - drawn[:, 1]).std(axis=-1, ddof=1) * self.sample.reach
        low = np.maximum(apart - own, least[:, 0] - most[1])[may_be[:, 0]]
        return float(low.min()), float(np.minimum(apart + own, most[0] - least[:, 1])[may_be[:, 1]].max())

    def _possible(self) -> tuple[Values, Values, Values]:
        """The least that the mean of each part may be, the mean, and the most.  # (parts, sides) each

        All three are the mean, as its error is known from resamples, but for a part of equal scores, whose resamples do not
        differ: its next unit may, with the chance that as many equal ones leave.
        """
        sums, counts, means = self.sample.sums, self.sample.counts[..., None], self.sample.means
        equal = (np.abs(sums - counts * means) < 1e-12).all(axis=0)
        units = (self.sample.counts > 0).sum(axis=0)[:, None]
        unseen = np.where(equal, 1 - (TAIL / len(means)) ** (1 / units), 0.0)
        return means * (1 - unseen), means, means + (1 - means) * unseen

    def _together(self, deviations: Values, errors: Values) -> Values:
        """How many errors all pairs, along the first axis, are off by at most in 95 % of the resamples, along the last."""
        scaled = np.abs(deviations) / np.where(errors > 0, errors, np.inf)[..., None]
        most: Values = np.quantile(scaled.max(axis=0), 1 - TAIL, axis=-1)
        return most * self.sample.reach / NORMAL

    def _percentiles(self, drawn: Values, value: float) -> Interval:
        """Of the resamples of a figure.

        It may be biased: a harmonic mean of many parts comes out too low by chance, and its resamples once more. Where that
        is more than a tenth of a standard error the percentiles are shifted by as much as both are off.
        """
        from scipy import stats

        drawn = _finite(drawn)
        tail = stats.norm.sf(self.sample.reach)
        low, high = np.quantile(drawn, (tail, 1 - tail))
        bias = float(drawn.mean()) - value
        negligible = max(_NEGLIGIBLE, 3 / np.sqrt(len(drawn))) * float(drawn.std())  # or not told from chance
        shift = 2 * bias if abs(bias) > negligible else 0.0
        return float(low) - shift, float(high) - shift


def paired_p_value(sample: Sample) -> float | None:
    """Of a t-test of the difference of both sides' means by units; None where there is nothing to compare.

    Its standard error is the jackknife's; with one query for each unit that is the paired t-test.
    """
    from scipy import stats

    differences = sample.sums[:, 0, 0] - sample.sums[:, 0, 1]
    count = len(differences)
    if not differences.any():
        return 1.0 if count > 1 else None
    left_out = sample.without_each()[0]
    apart = left_out[0] - left_out[1]
    error = np.sqrt((count - 1) / count * np.square(apart - apart.mean()).sum()) if count > 1 else 0.0
    if error <= 1e-15:
        return None  # one unit, or the same difference every time: a t-test says nothing
    own, other = sample.means[0]
    return float(2 * stats.t.sf(abs(own - other) / error, sample.freedom))


def holm(p_values: Sequence[float]) -> list[float]:
    """P-values corrected for their number after Holm (1979): the chance that any is falsely below a bound is below it."""
    corrected, highest = [0.0] * len(p_values), 0.0
    for rank, place in enumerate(np.argsort(p_values, kind="stable")):
        highest = max(highest, min(1.0, (len(p_values) - rank) * p_values[place]))
        corrected[place] = highest
    return corrected


def shuffled_sensitivity(
    scores: Values, labels: Sequence[Hashable], units: Sequence[Hashable], shuffles: int, seed: int
) -> Values:
    """PSI of one score for each query when the labels of queries are shuffled, `shuffles` times.

    `labels` are tuples of groups. They change places within a unit, and units with as many queries exchange theirs, so that
    queries on one document stay one observation. So do units whose queries all have the same labels.
    """
    generator = np.random.default_rng(seed)
    names, label = codes_of(labels)
    _, unit = codes_of(units)
    member = np.array(
        [[group in of_label for of_label in names] for group in dict.fromkeys(g for n in names for g in n)]
    )
    order = np.argsort(unit, kind="stable")
    starts = np.flatnonzero(np.diff(unit[order], prepend=-1))
    lowest, highest = (edge.reduceat(label[order], starts) for edge in (np.minimum, np.maximum))
    whole, sizes = lowest == highest, np.bincount(unit)
    alike = [starts[sizes == size, None] + np.arange(size) for size in np.unique(sizes)]  # (units, queries), each
    values = np.empty(shuffles)
    for turn in range(shuffles):
        of_unit = lowest.copy()
        of_unit[whole] = generator.permutation(lowest[whole])
        placed = np.where(whole[unit[order]], of_unit[unit[order]], label[order])
        for places in alike:
            placed[places] = generator.permuted(generator.permutation(placed[places]), axis=1)
        sums, counts = (np.bincount(placed, weights, len(names)) for weights in (scores[order], None))
        with np.errstate(invalid="ignore"):
            means = (member @ sums) / (member @ counts)
        means = means[np.isfinite(means)]
        values[turn] = 1 - means.min() / means.max() if means.max() > 0 else 0.0
    return values


def _finite(drawn: Values) -> Values:
    """Without the resamples that left out a whole part."""
    return drawn[np.isfinite(drawn)]
