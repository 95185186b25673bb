"""Results of several languages as one: PosIR's macro-averages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from evenspan.evaluation.scores import EvaluationResult, GroupScore
from evenspan.evaluation.statistics import Interval


def macro_average(results: Sequence[EvaluationResult]) -> EvaluationResult:
    """The mean over languages of each figure of one method; bins and buckets that a language has not are left out there.

    Ends of intervals are averaged as well: where each of them covers its figure, so does the mean; it is wider than needed.
    There are no scores of queries in it, so that averages are shown side by side without tests.
    """
    if len({result.method for result in results}) != 1:
        raise ValueError("macro_average needs the results of one method, and at least one of them.")
    first = results[0]
    names = list(dict.fromkeys(name for result in results for name in result.groups))
    groups = {}
    for name in names:
        known = [result.groups[name] for result in results if name in result.groups]
        ndcg, recall = (float(np.mean([getattr(group, field) for group in known])) for field in ("ndcg", "recall"))
        groups[name] = GroupScore(ndcg, recall, sum(group.count for group in known))
    benchmarks = [result.benchmark for result in results]
    sizes = [result.bytes_per_document for result in results]
    return EvaluationResult(
        benchmark=f"macro-average over {len(results)}: {', '.join(benchmarks)}",
        scoring=first.scoring,
        method=first.method,
        ndcg=float(np.mean([result.ndcg for result in results])),
        recall=float(np.mean([result.recall for result in results])),
        groups=groups,
        harmonic_mean=_mean([result.harmonic_mean for result in results]),
        psi=_mean([result.psi for result in results]),
        intervals=_intervals([result.intervals for result in results]),
        more={
            name: value for name, value in _means([result.more for result in results]).items() if "p_value" not in name
        },
        vectors_per_document=float(np.mean([result.vectors_per_document for result in results])),
        notes=("Macro-average over languages; the ends of its intervals are the means of theirs.",),
        setting={**first.setting, "averaged": benchmarks},
        bytes_per_document=_mean(sizes),
    )


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if known else None


def _means(each: Sequence[Mapping[str, float]]) -> dict[str, Any]:
    names = dict.fromkeys(name for figures in each for name in figures)
    return {name: _mean([figures.get(name) for figures in each]) for name in names}


def _intervals(each: Sequence[Mapping[str, Interval | None]]) -> dict[str, Interval | None]:
    averaged: dict[str, Interval | None] = {}
    for name in dict.fromkeys(name for intervals in each for name in intervals):
        known = [ends for intervals in each if (ends := intervals.get(name)) is not None]
        averaged[name] = (_middle(known, 0), _middle(known, 1)) if known else None
    return averaged


def _middle(ends: Sequence[Interval], side: int) -> float:
    return float(np.mean([of_language[side] for of_language in ends]))
