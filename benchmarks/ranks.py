"""Where queries find their documents: all that is kept of a run on a GPU, and enough for figures made elsewhere."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evenspan.evaluation.benchmark import Benchmark
from evenspan.evaluation.scores import EvaluationResult, QueryScore
from evenspan.evaluation.scoring import Resampling, summarise
from evenspan.evaluation.search import DocumentVectors, search
from evenspan.evaluation.units import document_units

DEPTH = 10
RESAMPLES, SEED = 1000, 42

Ranks = NDArray[np.uint8]


def ranked(benchmark: Benchmark, queries: NDArray[np.float32], documents: DocumentVectors) -> Ranks:
    """The rank of each query's document; 0 if it is not among the first ten. Each query has one right document."""
    (collection,) = benchmark.collections
    found = search(queries, documents, DEPTH)
    right = [next(iter(collection.relevance[query.id])) for query in collection.queries]
    return np.array([_place(own, best) for own, best in zip(right, found, strict=True)], dtype=np.uint8)


def _place(document: str, found: Sequence[str]) -> int:
    return found.index(document) + 1 if document in found else 0


def results(
    benchmark: Benchmark, rows: Sequence[dict[str, Any]], ranks: Ranks, *, intervals: bool
) -> Iterator[EvaluationResult]:
    """What `evaluate` gives for each row, which has a `method` and its `vectors` for each document."""
    units = document_units(benchmark)
    (collection,) = benchmark.collections
    gains = np.array([0.0, *(1 / np.log2(np.arange(1, DEPTH + 1) + 1))])
    for row, of_row in zip(rows, ranks, strict=True):
        scores = [
            QueryScore(
                collection.name, query.id, query.groups, query.position, query.length,
                {"ndcg@10": float(gains[place]), "recall@10": float(place > 0)}, units[collection.name, query.id],
            )
            for query, place in zip(collection.queries, of_row, strict=True)
        ]  # fmt: skip
        yield EvaluationResult(
            benchmark=benchmark.name,
            method=row["method"],
            vectors_per_document=row["vectors"],
            setting={"resamples": RESAMPLES, "seed": SEED, "data_sha256": benchmark.digest()},
            per_query=tuple(scores),
            **summarise(benchmark, scores, Resampling(RESAMPLES if intervals else 0, SEED)),
        )


def save(path: Path, about: dict[str, Any], arrays: dict[str, Any]) -> None:
    """Written whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(".tmp.npz")
    np.savez_compressed(temporary, about=json.dumps(about), **arrays)
    temporary.replace(path)


def saved(folder: Path) -> Iterator[tuple[Path, dict[str, Any], dict[str, Any]]]:
    """Every file of a folder: what it is about, and its arrays."""
    for path in sorted(set(folder.glob("*.npz")) - set(folder.glob("*.tmp.npz"))):
        with np.load(path) as stored:
            yield path, json.loads(str(stored["about"])), {name: stored[name] for name in stored if name != "about"}
