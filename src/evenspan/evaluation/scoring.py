"""From the scores of queries to the figures of a benchmark, by the benchmark's own rules."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from evenspan.evaluation.benchmark import Benchmark, Scoring
from evenspan.evaluation.measures import harmonic_mean, position_sensitivity
from evenspan.evaluation.sampling import Sample, Values
from evenspan.evaluation.scores import GroupScore, QueryScore
from evenspan.evaluation.statistics import Bootstrap, Interval, Statistic, shuffled_sensitivity
from evenspan.evaluation.units import ALONE, FEW, by_document, units_of

CHANCE = 0.05
# PosIR's length buckets, by tokens of the document: (0, 512], (512, 1024], (1024, 1536], over 1536.
BUCKETS = {"Q1": (0, 512), "Q2": (512, 1024), "Q3": (1024, 1536), "Q4": (1536, float("inf"))}
# Figures that say how evenly positions are found, of the means of groups.
EVENNESS: dict[str, Statistic] = {"harmonic_mean": harmonic_mean, "psi": position_sensitivity}
SHUFFLES = 200  # of position labels, for what PSI is by chance


@dataclass(frozen=True)
class Resampling:
    """How intervals are computed: by so many resamples, none for 0."""

    resamples: int
    seed: int

    def __post_init__(self) -> None:
        for name, value in (("resamples", self.resamples), ("seed", self.seed)):
            if value < 0:
                raise ValueError(f"{name} must be at least 0, not {value}.")

    def bootstrap(self, sample: Sample) -> Bootstrap | None:
        """Of a sample; None where there are no resamples or too few units."""
        return Bootstrap.of(sample, self.resamples, self.seed)


def summarise(benchmark: Benchmark, rows: Sequence[QueryScore], resampling: Resampling) -> dict[str, Any]:
    """The summary fields of an `EvaluationResult`."""
    scoring, names = benchmark.scoring, [collection.name for collection in benchmark.collections]
    grouped = group_rows(scoring, names if scoring == "average" else benchmark.groups, rows)
    overall = {
        name: float(overall_mean(sample_of(overall_parts(scoring, grouped, rows), name).means)[0])
        for name in rows[0].scores
    }
    intervals: dict[str, Interval | None] = {}
    for name in ("ndcg", "recall"):
        bootstrap = resampling.bootstrap(sample_of(overall_parts(scoring, grouped, rows), f"{name}@10"))
        intervals[name] = None if bootstrap is None else bootstrap.interval(overall_mean)
    evenness: dict[str, float | None] = dict.fromkeys(EVENNESS)
    more: dict[str, float] = {}
    if benchmark.groups:
        sample = sample_of(grouped.values(), "ndcg@10")
        bootstrap = resampling.bootstrap(sample)
        evenness = {name: float(statistic(sample.means)[0]) for name, statistic in EVENNESS.items()}
        intervals["harmonic_mean"] = None if bootstrap is None else bootstrap.interval(harmonic_mean)
        intervals["psi"] = None if bootstrap is None else bootstrap.sensitivity_interval()
        more = _noise_floor(rows, benchmark.groups, resampling, float(evenness["psi"] or 0.0))
    if scoring == "posir":
        buckets, of_buckets = _length_buckets(benchmark, rows, resampling)
        more, intervals = more | buckets, intervals | of_buckets
    return {
        "scoring": scoring,
        "ndcg": overall.pop("ndcg@10"),
        "recall": overall.pop("recall@10"),
        "groups": {name: _group_score(members, resampling) for name, members in grouped.items()},
        **evenness,
        "intervals": intervals,
        "more": overall | more,
        "notes": _notes(benchmark, rows, grouped, more | {name: value or 0.0 for name, value in evenness.items()}),
    }


def group_rows(scoring: Scoring, names: Iterable[str], rows: Sequence[QueryScore]) -> dict[str, list[QueryScore]]:
    """The rows of each group, or of each collection where the scoring is an average over those.

    A query with two groups is in both; groups without queries (PosIR's empty bins) are left out.
    """
    grouped: dict[str, list[QueryScore]] = {name: [] for name in names}
    for row in rows:
        for name in (row.collection,) if scoring == "average" else row.groups:
            if name in grouped:
                grouped[name].append(row)
    return {name: members for name, members in grouped.items() if members}


def in_bucket(name: str, rows: Sequence[QueryScore]) -> list[QueryScore]:
    """The queries on documents of a length bucket of PosIR."""
    low, high = BUCKETS[name]
    return [row for row in rows if row.length and low < row.length <= high]


def overall_parts(
    scoring: Scoring, grouped: Mapping[str, Sequence[QueryScore]], rows: Sequence[QueryScore]
) -> list[Sequence[QueryScore]]:
    """What the overall figure is the mean of: the sets' means, or all queries as one."""
    return list(grouped.values()) if scoring == "average" else [rows]


def overall_mean(means: Values) -> Values:
    """The mean over parts of the mean of each."""
    mean: Values = means.mean(axis=0)
    return mean


def sample_of(
    parts: Iterable[Sequence[QueryScore]], measure: str, others: Iterable[Sequence[QueryScore]] | None = None
) -> Sample:
    """The scores of queries in one measure, to be resampled by document; with `others`, the same queries, as two sides."""
    members = list(parts)
    sides = [members] if others is None else [members, list(others)]
    values = [np.array([[row.scores[measure] for row in side] for side in part]).T for part in zip(*sides, strict=True)]
    return Sample.of(values, [units_of(rows) for rows in members])


def _group_score(rows: Sequence[QueryScore], resampling: Resampling) -> GroupScore:
    samples = {name: sample_of([rows], name) for name in rows[0].scores}
    scores = {name: float(sample.means[0, 0]) for name, sample in samples.items()}
    bootstraps = [resampling.bootstrap(samples[name]) for name in ("ndcg@10", "recall@10")]
    ndcg, recall = (None if bootstrap is None else bootstrap.interval(overall_mean) for bootstrap in bootstraps)
    return GroupScore(scores["ndcg@10"], scores["recall@10"], len(rows), ndcg, recall, scores)


def _noise_floor(
    rows: Sequence[QueryScore], names: Sequence[str], resampling: Resampling, psi: float, suffix: str = ""
) -> dict[str, float]:
    """The mean PSI of shuffled position labels, and in how many shuffles it is as high as it is."""
    labelled = [row for row in rows if set(row.groups) & set(names)]
    shuffles = min(SHUFFLES, resampling.resamples)
    if not shuffles:
        return {}
    scores, labels = np.array([row.scores["ndcg@10"] for row in labelled]), [row.groups for row in labelled]
    drawn = shuffled_sensitivity(scores, labels, units_of(labelled), shuffles, resampling.seed)
    as_high = float((1 + (drawn >= psi - 1e-12).sum()) / (1 + shuffles))
    return {f"psi_floor{suffix}": float(drawn.mean()), f"psi_p_value{suffix}": as_high}


def _length_buckets(
    benchmark: Benchmark, rows: Sequence[QueryScore], resampling: Resampling
) -> tuple[dict[str, float], dict[str, Interval | None]]:
    """PosIR: PSI and nDCG@10 over the bin means inside each length bucket, and how many bins were empty."""
    names = benchmark.groups
    figures = {"empty_bins": float(len(names) - len(group_rows("posir", names, rows)))}
    intervals: dict[str, Interval | None] = {}
    for name in BUCKETS:
        inside = in_bucket(name, rows)
        bins = group_rows("posir", names, inside)
        figures[f"empty_bins_{name}"] = float(len(names) - len(bins))
        if bins:
            sample = sample_of(bins.values(), "ndcg@10")
            psi = float(position_sensitivity(sample.means)[0])
            figures |= {f"psi_{name}": psi, f"ndcg_{name}": float(sample.means.mean())}  # of bin means, not of queries
            figures |= _noise_floor(inside, names, resampling, psi, f"_{name}")
            bootstrap = resampling.bootstrap(sample)
            intervals[f"psi_{name}"] = None if bootstrap is None else bootstrap.sensitivity_interval()
            intervals[f"ndcg_{name}"] = None if bootstrap is None else bootstrap.interval(overall_mean)
    return figures, intervals


def _notes(
    benchmark: Benchmark, rows: Sequence[QueryScore], grouped: dict[str, list[QueryScore]], more: Mapping[str, float]
) -> tuple[str, ...]:
    notes = list(benchmark.notes)
    notes += [
        f"too few queries in group {name!r} for reliable figures: {len(members)}"
        for name, members in grouped.items()
        if len(members) < FEW
    ]
    if benchmark.groups and not any(row.scores["ndcg@10"] for members in grouped.values() for row in members):
        notes.append("no query finds its document: a PSI of 0 does not mean fairness here")
    alone = dict.fromkeys(row.collection for row in rows if (row.unit or "").startswith(ALONE))
    if alone:
        notes.append(f"the queries of {', '.join(alone)} have documents in common and are resampled one by one")
    if by_document(rows) and (units := len({row.unit for row in rows})) < FEW:
        notes.append(f"all queries are about {units} documents, too few for stars; intervals say little")
    if more.get("psi_p_value", 0.0) > CHANCE:
        notes.append(f"PSI {more['psi']:.3f} is not significantly above chance ({more['psi_floor']:.3f})")
    bins = len(benchmark.groups)
    if benchmark.scoring == "posir":
        empty = {f" of {name}": int(more[f"empty_bins_{name}"]) for name in BUCKETS if f"psi_{name}" in more}
        notes += [
            f"{number} of {bins} position bins{of} are empty and skipped"
            for of, number in {"": bins - len(grouped), **empty}.items()
            if number
        ]
    if "limit" in benchmark.options:
        notes.append(f"limited to {benchmark.options['limit']} documents: scores are higher than on the whole corpus")
    return tuple(notes)
