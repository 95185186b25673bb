"""Scores: nDCG and recall per query by trec's own code (through ir_measures), and what positions make of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Scores = dict[str, dict[str, float]]


def with_default_cut(cuts: Iterable[int]) -> list[int]:
    """The cuts that are asked for and 10, in order."""
    wanted = sorted({10, *cuts})
    if wanted[0] < 1:
        raise ValueError(f"A cut must be at least 1, not {wanted[0]}.")
    return wanted


def measure(
    rankings: Mapping[str, Sequence[str]], relevance: Mapping[str, Mapping[str, int]], cuts: Iterable[int] = (10,)
) -> Scores:
    """NDCG and recall at each cut for each query: `{query: {"ndcg@10": …, "recall@10": …}}`.

    The order of each ranking is taken as it is: trec's own tie rule has nothing left to decide.
    """
    import ir_measures
    from ir_measures import R, nDCG

    measures: dict[Any, str] = {}
    for cut in cuts:
        measures |= {nDCG @ cut: f"ndcg@{cut}", R @ cut: f"recall@{cut}"}
    deepest = max(cuts)
    run = {
        query: {document: float(-rank) for rank, document in enumerate(ranking[:deepest])}
        for query, ranking in rankings.items()
    }
    judged = {query: dict(relevance[query]) for query in rankings}
    scores: Scores = {query: dict.fromkeys(measures.values(), 0.0) for query in rankings}
    for value in ir_measures.iter_calc(list(measures), judged, run):
        scores[value.query_id][measures[value.measure]] = value.value
    return scores


def harmonic_mean(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """HM of the groups' scores along the first axis; 0 if a group scores 0."""
    with np.errstate(divide="ignore"):
        mean: NDArray[np.float64] = len(values) / (1.0 / values).sum(axis=0)
    return mean


def position_sensitivity(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """PSI: 1 − min / max of the groups' scores along the first axis; 0 if all are 0."""
    highest = values.max(axis=0)
    return np.where(highest > 0, 1.0 - values.min(axis=0) / np.where(highest > 0, highest, 1.0), 0.0)


def lowest(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """The lowest of the groups' scores along the first axis."""
    least: NDArray[np.float64] = values.min(axis=0)
    return least
