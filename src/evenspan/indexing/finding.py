"""Documents by their best row, and by vectors and words together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from evenspan.indexing.stores.base import Hit
from evenspan.ranking import fuse

_FUSED = 100  # documents of each ranking that are fused, at least
_MOST = 1_000_000
_ROWS = 4  # of a document, as a first guess

Find = Callable[[list[int], int], list[list[Hit]]]  # the rows for some queries, by number; so many, or all


def best_documents(find: Find, queries: int, k: int, *, chunked: bool) -> list[list[Hit]]:
    """The `k` documents whose best rows are best, for each query; rows are asked for until there are enough."""
    if not queries or not chunked:
        return find(list(range(queries)), k) if queries else []
    documents: list[list[Hit]] = [[] for _ in range(queries)]
    open_queries, asked = list(range(queries)), k * _ROWS
    while open_queries:
        short = []
        for number, rows in zip(open_queries, find(open_queries, asked), strict=True):
            best: dict[str, Hit] = {}
            for row in rows:
                best.setdefault(row.id, row)
            documents[number] = list(best.values())[:k]
            if len(best) < k and len(rows) >= asked:
                short.append(number)
        open_queries, asked = short, asked * _ROWS
    return documents


def fused_documents(by_vector: Sequence[list[Hit]], by_words: Sequence[list[Hit]], k: int) -> list[list[Hit]]:
    """The best documents of both rankings by reciprocal rank, which becomes their score; of each the row that came first."""
    fused = []
    for near, alike in zip(by_vector, by_words, strict=True):
        rows = {hit.id: hit for hit in (*alike, *near)}  # the vector says which part of a document matches
        ranked = fuse([[hit.id for hit in near], [hit.id for hit in alike]])[:k]
        fused.append([replace(rows[name], score=score) for name, score in ranked])
    return fused


def fused_depth(k: int) -> int:
    """How many documents of each ranking are fused for the best `k`."""
    return max(_FUSED, min(2 * k, _MOST))
