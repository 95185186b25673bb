"""From the scores of queries to the figures of a benchmark, by the benchmark's own rules."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from evenspan.evaluation.benchmark import Benchmark, Scoring
from evenspan.evaluation.measures import harmonic_mean, position_sensitivity
from evenspan.evaluation.scores import GroupScore, QueryScore
from evenspan.evaluation.statistics import Interval, Statistic, Values, bootstrap_interval, means

FEW = 10  # a group with fewer queries is reported as too small
# PosIR's length buckets, by tokens of the document: (0, 512], (512, 1024], (1024, 1536], over 1536.
BUCKETS = {"Q1": (0, 512), "Q2": (512, 1024), "Q3": (1024, 1536), "Q4": (1536, float("inf"))}
# Figures that say how evenly positions are found, as statistics of the scores in each group.
EVENNESS: dict[str, Statistic] = {
    "harmonic_mean": lambda groups: harmonic_mean(means(groups)),
    "psi": lambda groups: position_sensitivity(means(groups)),
}


@dataclass(frozen=True)
class Resampling:
    """How intervals are computed: by so many resamples, none for 0."""

    resamples: int
    seed: int

    def __post_init__(self) -> None:
        for name, value in (("resamples", self.resamples), ("seed", self.seed)):
            if value < 0:
                raise ValueError(f"{name} must be at least 0, not {value}.")


def summarise(benchmark: Benchmark, rows: Sequence[QueryScore], resampling: Resampling) -> dict[str, Any]:
    """The summary fields of an `EvaluationResult`."""
    names = [collection.name for collection in benchmark.collections]
    grouped = group_rows(benchmark.scoring, names if benchmark.scoring == "average" else benchmark.groups, rows)
    ndcg = [values_of(members, "ndcg@10") for members in grouped.values()]
    parts = {name: overall_parts(benchmark.scoring, grouped, rows, name) for name in rows[0].scores}
    overall = {name: float(overall_mean(of_measure)) for name, of_measure in parts.items()}
    intervals = {name: _interval(parts[f"{name}@10"], overall_mean, resampling) for name in ("ndcg", "recall")}
    evenness = {name: float(statistic(ndcg)) if benchmark.groups else None for name, statistic in EVENNESS.items()}
    if benchmark.groups:
        intervals |= {name: _interval(ndcg, statistic, resampling) for name, statistic in EVENNESS.items()}
    return {
        "scoring": benchmark.scoring,
        "ndcg": overall.pop("ndcg@10"),
        "recall": overall.pop("recall@10"),
        "groups": {name: _group_score(members, resampling) for name, members in grouped.items()},
        **evenness,
        "intervals": intervals,
        "more": overall | (_length_buckets(benchmark, rows) if benchmark.scoring == "posir" else {}),
        "notes": _notes(benchmark, grouped),
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


def overall_parts(
    scoring: Scoring, grouped: Mapping[str, Sequence[QueryScore]], rows: Sequence[QueryScore], measure: str
) -> list[Values]:
    """What the overall figure is the mean of: the sets' means, or all queries as one."""
    return [values_of(members, measure) for members in (grouped.values() if scoring == "average" else [rows])]


def overall_mean(parts: list[Values]) -> Values:
    """The mean over parts of the mean of each."""
    mean: Values = means(parts).mean(axis=0)
    return mean


def values_of(rows: Sequence[QueryScore], measure: str) -> Values:
    """The scores of queries in one measure."""
    return np.array([row.scores[measure] for row in rows])


def _interval(groups: list[Values], statistic: Statistic, resampling: Resampling) -> Interval | None:
    return bootstrap_interval(groups, statistic, resampling.resamples, resampling.seed)


def _group_score(rows: Sequence[QueryScore], resampling: Resampling) -> GroupScore:
    scores = {name: float(values_of(rows, name).mean()) for name in rows[0].scores}
    ndcg, recall = (_interval([values_of(rows, name)], overall_mean, resampling) for name in ("ndcg@10", "recall@10"))
    return GroupScore(scores["ndcg@10"], scores["recall@10"], len(rows), ndcg, recall, scores)


def _length_buckets(benchmark: Benchmark, rows: Sequence[QueryScore]) -> dict[str, float]:
    """PosIR: PSI and nDCG@10 over the bin means inside each length bucket, and how many bins were empty."""
    names = benchmark.groups
    figures = {"empty_bins": float(len(names) - len(group_rows("posir", names, rows)))}
    for name, (low, high) in BUCKETS.items():
        bins = group_rows("posir", names, [row for row in rows if row.length and low < row.length <= high])
        figures[f"empty_bins_{name}"] = float(len(names) - len(bins))
        if bins:
            scores = means([values_of(members, "ndcg@10") for members in bins.values()])
            figures[f"psi_{name}"] = float(position_sensitivity(scores))
            figures[f"ndcg_{name}"] = float(scores.mean())  # of bin means, not of queries
    return figures


def _notes(benchmark: Benchmark, grouped: dict[str, list[QueryScore]]) -> tuple[str, ...]:
    notes = [
        f"group {name!r} has {len(members)} queries: too few for its figures to mean much"
        for name, members in grouped.items()
        if len(members) < FEW
    ]
    if benchmark.groups and not any(row.scores["ndcg@10"] for members in grouped.values() for row in members):
        notes.append("no query finds its document: a PSI of 0 is not fairness here")
    bins = len(benchmark.groups)
    if benchmark.scoring == "posir" and len(grouped) < bins:
        notes.append(f"{bins - len(grouped)} of {bins} position bins are empty and skipped")
    if "limit" in benchmark.options:
        notes.append(f"limited to {benchmark.options['limit']} documents: scores are higher than on the whole corpus")
    return tuple(notes)
