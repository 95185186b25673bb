"""BM25 and vectors together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

from sentence_transformers import SentenceTransformer

from evenspan.evaluation.methods.base import Method, Plain
from evenspan.evaluation.methods.bm25 import Bm25
from evenspan.ranking import RANK_OFFSET, fuse

DEPTH = 1000  # documents of each ranking that are fused


@dataclass(frozen=True)
class Hybrid(Method):
    """Reciprocal-rank fusion (Cormack et al., 2009) of BM25 with a method that makes vectors.

    Args:
        k: is added to each rank: the larger, the less the first places count.
        dense: the method that makes vectors.
        sparse: BM25 with its settings.
    """

    kind: ClassVar[str] = "hybrid"
    k: int = RANK_OFFSET
    dense: Method = Plain()
    sparse: Bm25 = Bm25()

    def __post_init__(self) -> None:
        if self.k < 1:
            raise ValueError(f"k must be at least 1, not {self.k}.")
        if isinstance(self.dense, (Bm25, Hybrid)):
            raise ValueError(f"hybrid fuses BM25 with a method that makes vectors, not with {self.dense.kind}.")

    @property
    def name(self) -> str:
        """The settings of both rankings."""
        return f"{self.kind},k={self.k},{self.sparse.name.removeprefix('bm25,')}+{self.dense.name}"

    def check(self, model: SentenceTransformer, prompt: str | None = None) -> None:  # noqa: D102
        self.sparse.check(model, prompt)
        self.dense.check(model, prompt)

    def fuse(self, rankings: Sequence[Iterator[list[str]]], depth: int) -> Iterator[list[str]]:
        """The best `depth` documents of each query by the sum of 1 / (k + rank) over rankings; equal ones in order of id."""
        for of_query in zip(*rankings, strict=True):
            yield [document for document, _ in fuse(of_query, self.k)[:depth]]
