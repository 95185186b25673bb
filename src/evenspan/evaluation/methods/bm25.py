"""BM25: words, no vectors."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from sentence_transformers import SentenceTransformer

from evenspan.errors import require_extra
from evenspan.evaluation.methods.base import Method

_WORD = re.compile(r"[㐀-鿿豈-﫿぀-ヿ가-힯]|[^\W㐀-鿿豈-﫿぀-ヿ가-힯]+")


def words(text: str) -> list[str]:
    """Lower-case words; in scripts without spaces each character is one."""
    return _WORD.findall(text.lower())


@dataclass(frozen=True)
class Bm25(Method):
    """BM25 by bm25s: words, no vectors. Where its scores differ by position, the data does, not a model."""

    kind: ClassVar[str] = "bm25"
    k1: float = 1.5
    b: float = 0.75

    def __post_init__(self) -> None:
        if not 0 <= self.k1 < float("inf"):
            raise ValueError(f"k1 must be a number of at least 0, not {self.k1}.")
        if not 0 <= self.b <= 1:
            raise ValueError(f"b must lie between 0 and 1, not {self.b}.")

    def check(self, model: SentenceTransformer, prompt: str | None = None) -> None:  # noqa: ARG002, D102
        require_extra("eval", "bm25", "bm25s")

    def rank(self, corpus: Mapping[str, str], queries: Sequence[str], depth: int) -> Iterator[list[str]]:
        """The best `depth` documents that share a word with each query; equal scores in order of id."""
        import bm25s

        ids = sorted(corpus)
        index = bm25s.BM25(method="lucene", k1=self.k1, b=self.b)
        index.index([words(corpus[name]) for name in ids], show_progress=False)
        for query in queries:
            scores = index.get_scores(words(query)) if words(query) else np.zeros(len(ids), dtype=np.float32)
            best = np.lexsort((np.arange(len(ids)), -scores.astype(np.float64).round(6)))[:depth]
            yield [ids[place] for place in best if scores[place] > 0]
