"""Two parts of a benchmark's queries that share no document and have every position."""

from __future__ import annotations

from collections import Counter

import numpy as np

from evenspan.evaluation.benchmark import Benchmark
from evenspan.evaluation.benchmarks.texts import is_made_of_texts
from evenspan.evaluation.units import FEW, QueryKey, document_units


def split(benchmark: Benchmark, share: float, seed: int) -> set[QueryKey]:
    """The queries of one part. Queries that share a relevant document are on the same side.

    Raises:
        ValueError: if a group of queries would be too small on either side for anything to be told.
    """
    clusters = document_units(benchmark)
    names = sorted(set(clusters.values()))
    shuffled = np.random.default_rng(seed).permutation(names)
    chosen = set(shuffled[: round(share * len(names))].tolist())
    part = {key for key, cluster in clusters.items() if cluster in chosen}
    inside, outside = Counter[str](), Counter[str]()
    for collection in benchmark.collections:
        for query in collection.queries:
            side = inside if (collection.name, query.id) in part else outside
            side.update(query.groups or (collection.name,))
    for group in sorted({*inside, *outside}):
        fewest = min(inside[group], outside[group])
        if fewest < FEW:
            larger = "more documents (--sample)" if is_made_of_texts(benchmark.options) else "a larger benchmark"
            raise ValueError(
                f"Only {fewest} queries of {group!r} are on one side of the split, and at least {FEW} are needed: "
                f"use {larger}, or another share or seed."
            )
    return part
