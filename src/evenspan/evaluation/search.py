"""Exact search: all queries against all vectors, with a tie rule that depends on nothing but scores and ids.

Candidates come from float32 matrix products in blocks. Their scores are then computed again in float64 and rounded to
nine decimals, so that they do not depend on the block a vector was in; equal scores are ordered by document id.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

Vectors = NDArray[np.float32]

_BLOCK = 512  # queries at a time
_DECIMALS = 9
_NEAR = 1e-5  # more than float32 products of unit vectors are off


@dataclass(frozen=True)
class DocumentVectors:
    """One or more vectors for each document; a document scores as its best vector.

    Attributes:
        ids: of the documents.
        vectors: of all documents, one after the other.  # (vectors, dimensions)
        counts: how many vectors each document has.  # (documents,)
    """

    ids: Sequence[str]
    vectors: Vectors
    counts: NDArray[np.int64]


def search(queries: Vectors, documents: DocumentVectors, depth: int) -> Iterator[list[str]]:
    """The ids of the best `depth` documents for each query, best first."""
    ids = np.array(documents.ids, dtype=object)
    rank_of_id = np.argsort(np.argsort(ids, kind="stable"))
    starts = np.cumsum(documents.counts) - documents.counts
    owner = torch.from_numpy(np.repeat(np.arange(len(ids)), documents.counts))
    vectors = torch.from_numpy(documents.vectors)
    depth = min(depth, len(ids))
    for start in range(0, len(queries), _BLOCK):
        block = queries[start : start + _BLOCK]
        scores = torch.from_numpy(block) @ vectors.T
        if len(vectors) != len(ids):
            best = torch.full((len(block), len(ids)), -torch.inf)
            scores = best.scatter_reduce(1, owner.expand_as(scores), scores, "amax")
        top = scores.topk(depth, dim=1)
        # All that could tie with the last one, not only those that topk happened to choose.
        lowest = top.values[:, -1:] - _NEAR
        crowded = ((scores >= lowest).sum(dim=1) > depth).numpy()
        for row, query in enumerate(block):
            places = top.indices[row].numpy()
            if crowded[row]:
                places = torch.nonzero(scores[row] >= lowest[row]).flatten().numpy()
            exact = _exact_scores(query, documents, starts[places], documents.counts[places]).round(_DECIMALS)
            yield ids[places[np.lexsort((rank_of_id[places], -exact))][:depth]].tolist()


def _exact_scores(
    query: Vectors, documents: DocumentVectors, starts: NDArray[np.int64], counts: NDArray[np.int64]
) -> NDArray[np.float64]:
    """Scores of some documents in float64: of each the best of its vectors."""
    first = np.cumsum(counts) - counts
    places = np.repeat(starts - first, counts) + np.arange(counts.sum())
    scores = documents.vectors[places].astype(np.float64) @ query.astype(np.float64)
    best: NDArray[np.float64] = np.maximum.reduceat(scores, first)
    return best


def check_vectors(ids: Sequence[str], vectors: Vectors, what: str) -> None:
    """Refuse vectors with NaN or infinity, naming the texts they belong to."""
    broken = np.flatnonzero(~np.isfinite(vectors).all(axis=1))
    if len(broken):
        raise ValueError(
            f"The model gave NaN or infinite vectors for {len(broken)} {what}, first {ids[broken[0]]!r}: "
            "is its dtype too small for it? Try float32."
        )
