"""BM25: words, no vectors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import islice
from typing import ClassVar

import numpy as np
from sentence_transformers import SentenceTransformer

from evenspan.corpus.languages import detect_language
from evenspan.corpus.terms import terms
from evenspan.errors import require_extra
from evenspan.evaluation.methods.base import Method

_SAMPLE = 200  # documents that the language is told by


@dataclass(frozen=True)
class Bm25(Method):
    """BM25 by bm25s: words, no vectors. Where its scores differ by position, the data does, not a model.

    Args:
        k1: weight of repeated words.
        b: strength of length normalization.
        stemmer: a language of Snowball, such as `"german"`; `"none"`; or `"auto"`: that of the documents, told by their
            function words, if there is one.
    """

    kind: ClassVar[str] = "bm25"
    k1: float = 1.5
    b: float = 0.75
    stemmer: str = "auto"

    def __post_init__(self) -> None:
        if not 0 <= self.k1 < float("inf"):
            raise ValueError(f"k1 must be a number of at least 0, not {self.k1}.")
        if not 0 <= self.b <= 1:
            raise ValueError(f"b must lie between 0 and 1, not {self.b}.")
        if self.stemmer not in ("auto", "none") and self.stemmer not in _algorithms():
            known = ", ".join(("auto", "none", *_algorithms()))
            raise ValueError(f"Unknown stemmer {self.stemmer!r}. Available: {known}.")

    @property
    def name(self) -> str:
        """Without the stemmer where that is told by the documents: a note says which it was."""
        return f"{self.kind},k1={self.k1},b={self.b}" + f",stemmer={self.stemmer}" * (self.stemmer != "auto")

    def check(self, model: SentenceTransformer, prompt: str | None = None) -> None:  # noqa: ARG002, D102
        require_extra("eval", self.kind, "bm25s")

    def index(self, corpus: Mapping[str, str]) -> WordIndex:
        """An index of documents."""
        language = detect_language(list(islice(corpus.values(), _SAMPLE))) if self.stemmer == "auto" else self.stemmer
        return WordIndex(corpus, self.k1, self.b, language if language in _algorithms() else None)


class WordIndex:
    """Documents by their words, stemmed by the stemmer of a language if there is one."""

    def __init__(self, corpus: Mapping[str, str], k1: float, b: float, language: str | None) -> None:
        import bm25s

        self.language, self.ids = language, sorted(corpus)
        self._stem = None
        if language is not None:
            import Stemmer

            self._stem = Stemmer.Stemmer(language).stemWords
        self._index = bm25s.BM25(method="lucene", k1=k1, b=b)
        self._index.index([terms(corpus[name], self._stem) for name in self.ids], show_progress=False)

    @property
    def bytes(self) -> int:
        """What its scores take."""
        return sum(int(part.nbytes) for part in self._index.scores.values() if isinstance(part, np.ndarray))

    def remark(self) -> str:
        """How words were made."""
        stemmed = f"stemmed (Snowball, {self.language})" if self.language else "not stemmed"
        missing = "" if self.language or _algorithms() else ": PyStemmer is not installed"
        return f"bm25: words {stemmed}{missing}, pairs of characters in Chinese, Japanese and Korean"

    def rank(self, queries: Sequence[str], depth: int) -> Iterator[list[str]]:
        """The best `depth` documents that share a word with each query; equal scores in order of id."""
        for query in queries:
            asked = terms(query, self._stem)
            scores = self._index.get_scores(asked) if asked else np.zeros(len(self.ids), dtype=np.float32)
            best = np.lexsort((np.arange(len(self.ids)), -scores.astype(np.float64).round(6)))[:depth]
            yield [self.ids[place] for place in best if scores[place] > 0]


def _algorithms() -> tuple[str, ...]:
    """The stemmers there are; none without PyStemmer."""
    if find_spec("Stemmer") is None:
        return ()
    import Stemmer

    return tuple(Stemmer.algorithms())
