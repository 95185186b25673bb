"""From the scores of queries to the figures of a benchmark, by the benchmark's own rules."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evenspan.evaluation.benchmark import Benchmark, Scoring
from evenspan.evaluation.measures import harmonic_mean, position_sensitivity
from evenspan.evaluation.scores import GroupScore, QueryScore
from evenspan.evaluation.statistics import bootstrap_interval, means

Values = NDArray[np.float64]

MAIN = ("ndcg@10", "recall@10")
FEW = 10  # a group with fewer queries is reported as too small
# PosIR's length buckets, by tokens of the document: (0, 512], (512, 1024], (1024, 1536], over 1536.
BUCKETS = {"Q1": (0, 512), "Q2": (512, 1024), "Q3": (1024, 1536), "Q4": (1536, float("inf"))}


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
    ndcg = [_values(members, "ndcg@10") for members in grouped.values()]
    overall = {name: overall_mean(overall_parts(benchmark.scoring, grouped, rows, name)) for name in rows[0].scores}
    figures: dict[str, Any] = {
        "scoring": benchmark.scoring,
        "ndcg": float(overall["ndcg@10"]),
        "recall": float(overall["recall@10"]),
        "groups": {name: _group_score(members, resampling) for name, members in grouped.items()},
        "harmonic_mean": float(harmonic_mean(means(ndcg))) if benchmark.groups else None,
        "psi": float(position_sensitivity(means(ndcg))) if benchmark.groups else None,
        "more": {name: float(value) for name, value in overall.items() if name not in MAIN},
        "notes": _notes(benchmark, grouped),
    }
    figures["intervals"] = {
        short: _interval(overall_parts(benchmark.scoring, grouped, rows, name), overall_mean, resampling)
        for short, name in zip(("ndcg", "recall"), MAIN, strict=True)
    }
    if benchmark.groups:
        for name, statistic in (("harmonic_mean", harmonic_mean), ("psi", position_sensitivity)):
            figures["intervals"][name] = _interval(ndcg, lambda groups, of=statistic: of(means(groups)), resampling)
    if benchmark.scoring == "posir":
        figures["more"] |= _length_buckets(benchmark, rows)
    return figures


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
    return [_values(members, measure) for members in (grouped.values() if scoring == "average" else [rows])]


def overall_mean(parts: list[Values]) -> Values:
    """The mean over parts of the mean of each."""
    mean: Values = means(parts).mean(axis=0)
    return mean


def _values(rows: Sequence[QueryScore], name: str) -> Values:
    return np.array([row.scores[name] for row in rows])


def _interval(groups: list[Values], statistic: Any, resampling: Resampling) -> tuple[float, float] | None:
    return bootstrap_interval(groups, statistic, resampling.resamples, resampling.seed)


def _group_score(rows: Sequence[QueryScore], resampling: Resampling) -> GroupScore:
    scores = {name: float(_values(rows, name).mean()) for name in rows[0].scores}
    ndcg, recall = (_interval([_values(rows, name)], overall_mean, resampling) for name in MAIN)
    return GroupScore(scores["ndcg@10"], scores["recall@10"], len(rows), ndcg, recall, scores)


def _length_buckets(benchmark: Benchmark, rows: Sequence[QueryScore]) -> dict[str, float]:
    """PosIR: PSI and nDCG@10 over the bin means inside each length bucket, and how many bins were empty."""
    figures: dict[str, float] = {
        "empty_bins": float(len(benchmark.groups) - len(group_rows("posir", benchmark.groups, rows)))
    }
    for name, (low, high) in BUCKETS.items():
        inside = [row for row in rows if row.length is not None and low < row.length <= high]
        bins = group_rows("posir", benchmark.groups, inside)
        figures[f"empty_bins_{name}"] = float(len(benchmark.groups) - len(bins))
        if bins:
            scores = means([_values(members, "ndcg@10") for members in bins.values()])
            figures[f"psi_{name}"] = float(position_sensitivity(scores))
            figures[f"ndcg_{name}"] = float(scores.mean())  # of bin means, not of queries
    return figures


def _notes(benchmark: Benchmark, grouped: dict[str, list[QueryScore]]) -> tuple[str, ...]:
    small = {name: len(members) for name, members in grouped.items() if len(members) < FEW}
    notes = [
        f"group {name!r} has {count} queries: too few for its figures to mean much" for name, count in small.items()
    ]
    if benchmark.groups and not any(row.scores["ndcg@10"] for members in grouped.values() for row in members):
        notes.append("no query finds its document: a PSI of 0 is not fairness here")
    if benchmark.scoring == "posir" and len(grouped) < len(benchmark.groups):
        notes.append(
            f"{len(benchmark.groups) - len(grouped)} of {len(benchmark.groups)} position bins are empty and skipped"
        )
    if "limit" in benchmark.options:
        notes.append(f"limited to {benchmark.options['limit']} documents: scores are higher than on the whole corpus")
    return tuple(notes)
