"""Search an index with the query side of the model that made it."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, overload

import numpy as np
import torch
from numpy.typing import NDArray
from sentence_transformers import SentenceTransformer

from evenspan.corpus.chunks import Chunker
from evenspan.corpus.terms import terms
from evenspan.encoding import Encoder
from evenspan.identity import vectors_digest, weights_digest
from evenspan.indexing.filters import Filter, parse
from evenspan.indexing.finding import Find, best_documents, fused_depth, fused_documents
from evenspan.indexing.maintaining import delete_documents
from evenspan.indexing.run import index
from evenspan.indexing.settings import IndexSettings
from evenspan.indexing.stores import locate_store
from evenspan.indexing.stores.base import Hit, ReplacedError, Store
from evenspan.indexing.summary import IndexSummary
from evenspan.models.calibrating import uncalibrated
from evenspan.models.loading import load
from evenspan.models.reading import room_for_text

_PART_TOKENS = 64
_MOST_PARTS = 256  # of one document
_MOST_RESULTS = 1_000_000  # of one query


@dataclass(frozen=True)
class SearchResult:
    """A document that was found.

    Attributes:
        rank: 1 for the best.
        score: the similarity of the vectors; of a hybrid search the sum of 1 / (60 + rank) over its two rankings.
        id: of the document.
        text: the document's, if texts are kept; in an index of chunks, that of the chunk that matches best.
        part: the part of the text that matches best, if it was asked for; else, in an index of chunks, the chunk.
        metadata: of the document.
        span: from and to which character of the document the chunk goes, in an index of chunks.
    """

    rank: int
    score: float
    id: str
    text: str | None
    part: str | None
    metadata: Mapping[str, Any]
    span: tuple[int, int] | None = None


class Index:
    """An index, open for searching; made by `open_index`."""

    def __init__(
        self,
        store: str | os.PathLike[str],
        model: SentenceTransformer | None = None,
        *,
        table: str | None = None,
        device: str | None = None,
    ) -> None:
        self._location, self._table = store, table
        self._store = locate_store(store, table=table)()
        settings = self._store.settings()
        if settings is None:
            self._store.close()
            raise ValueError(f"No index found in {self._store.location}. Build one with `evenspan index`.")
        self.settings: IndexSettings = settings
        self._given, self._device = model, device
        self._encoders: dict[str, Encoder] = {}

    @cached_property
    def model(self) -> SentenceTransformer:
        """The model that made the index, loaded when it is first needed."""
        model = self._exact_model()
        # Half precision is for devices that are fast at it.
        return model.float() if self._given is None and model.device.type == "cpu" else model

    def _exact_model(self) -> SentenceTransformer:
        """The model that made the index, in the precision in which it did."""
        settings, model = self.settings, self._given
        dtype = getattr(torch, settings.dtype)
        if model is None:
            options: dict[str, Any] = {} if self._device is None else {"device": self._device}
            if settings.revision is not None and not os.path.isdir(settings.model):
                options["revision"] = settings.revision
            model = load(settings.model, **options).to(dtype)
        if vectors_digest(model, weights_digest(model, dtype)) != settings.weights:
            other = "" if model.dtype == dtype else f", or has lost precision: the index was made in {settings.dtype}"
            raise ValueError(
                f"{self._store.location} was made with {settings.model!r}, and this is another model{other}: pass the right "
                "one, or rebuild the index with --replace."
            )
        return model

    def _current(self) -> Store:
        """The store; opened again if the index was replaced by one with the same settings."""
        if self._store.replaced():
            opened = locate_store(self._location, table=self._table)()
            settings = opened.settings()
            if settings != self.settings:
                opened.close()
                raise ReplacedError(
                    f"{self._store.location} was replaced by an index with other settings: open it again."
                )
            self._store.close()
            self._store = opened
        return self._store

    def delete(self, ids: Iterable[str] | None = None, *, where: str | None = None) -> int:
        """Remove documents by their ids, or those that pass a filter; returns how many there were."""
        self._current()
        return delete_documents(self._location, ids, where=where, table=self._table)

    def upsert(self, documents: Iterable[Mapping[str, Any]], **options: Any) -> IndexSummary:
        """Add documents, or replace those with the same ids, encoded as all others; `options` are those of `index`."""
        self._current()
        settings = self.settings
        fixed = {"document_prompt": settings.document_prompt, "keep_text": settings.text, "table": self._table}
        fixed |= {name: getattr(settings, name) for name in ("chunk_tokens", "overlap", "full_text")}
        model = self._exact_model()
        return index(model, documents, self._location, settings.calibration, **{"progress": False, **options, **fixed})

    @overload
    def search(  # type: ignore[overload-overlap]
        self, queries: str, k: int = 10, where: str | None = None, *, parts: bool = False, hybrid: bool = False
    ) -> list[SearchResult]: ...

    @overload
    def search(
        self,
        queries: Sequence[str],
        k: int = 10,
        where: str | None = None,
        *,
        parts: bool = False,
        hybrid: bool = False,
    ) -> list[list[SearchResult]]: ...

    def search(
        self,
        queries: str | Sequence[str],
        k: int = 10,
        where: str | None = None,
        *,
        parts: bool = False,
        hybrid: bool = False,
    ) -> list[SearchResult] | list[list[SearchResult]]:
        """The `k` best documents for a query, or for each of several.

        Args:
            queries: one question, or several.
            k: how many documents.
            where: a filter on metadata, such as `"year >= 2020 and lang = 'de'"`.
            parts: also find the part of each document that matches best, which encodes the documents' parts.
            hybrid: rank by the store's own full-text index, too, and join the two rankings.
        """
        self._check(k, where)  # before a model is loaded
        if hybrid:
            self.check_hybrid()
        texts = [queries] if isinstance(queries, str) else list(queries)
        vectors = self.encode(texts)
        hits_of_each = self.search_vectors(vectors, fused_depth(k) if hybrid else k, where)
        if hybrid:
            hits_of_each = fused_documents(hits_of_each, self._search_words(texts, fused_depth(k), where), k)
        results = []
        for vector, hits in zip(vectors, hits_of_each, strict=True):
            ranked = enumerate(zip(hits, self._parts(vector, hits, parts), strict=True), start=1)
            results.append(
                [
                    SearchResult(rank, hit.score, hit.id, hit.text, part, hit.metadata, hit.span)
                    for rank, (hit, part) in ranked
                ]
            )
        return results[0] if isinstance(queries, str) else results

    def _check(self, k: int, where: str | None) -> Filter | None:
        if isinstance(k, bool) or not isinstance(k, int) or not 1 <= k <= _MOST_RESULTS:
            raise ValueError(f"k must be a whole number from 1 to {_MOST_RESULTS:,}, not {k!r}.")
        return None if where is None else parse(where, self._current().columns())

    def search_vectors(self, vectors: NDArray[np.float32], k: int = 10, where: str | None = None) -> list[list[Hit]]:
        """The `k` best documents for each query vector."""
        expression = self._check(k, where)
        if vectors.ndim != 2 or vectors.shape[1] != self.settings.dimensions:
            raise ValueError(
                f"Query vectors must have the shape (queries, {self.settings.dimensions}), not {vectors.shape}."
            )
        return self._rows(lambda some, rows: self._current().search(vectors[some], rows, expression), len(vectors), k)

    def _search_words(self, queries: Sequence[str], k: int, where: str | None) -> list[list[Hit]]:
        """The `k` best documents for each query by the store's full-text index."""
        expression, words = self._check(k, where), [terms(query) for query in queries]
        return self._rows(
            lambda some, rows: self._current().search_words([words[query] for query in some], rows, expression),
            len(words),
            k,
        )

    def _rows(self, find: Find, queries: int, k: int) -> list[list[Hit]]:
        """The best row of each of the best documents."""
        while True:
            try:
                return best_documents(find, queries, k, chunked=self.settings.chunk_tokens is not None)
            except ReplacedError:  # meanwhile
                self._current()

    def check_hybrid(self) -> None:
        """Refuse a hybrid search where there is no full-text index."""
        if self.settings.full_text:
            return
        if not self._store.searches_words:
            problem = "is a Parquet index, which has no full-text search: hybrid search needs LanceDB or PostgreSQL"
        elif not self.settings.text:
            problem = "stores no texts to search: index the documents with full_text=True into another store"
        else:
            problem = (
                "has no full-text index: index the documents with full_text=True, into another store or with --replace"
            )
        raise ValueError(f"{self._store.location} {problem}.")

    def encode(self, queries: Sequence[str]) -> NDArray[np.float32]:
        """The vectors of some queries: never calibrated, with the query prompt of the index."""
        return self._encode(queries, "query", self.settings.query_prompt)

    def _encode(self, texts: Sequence[str], role: Literal["document", "query"], prompt: str) -> NDArray[np.float32]:
        if not texts:
            return np.empty((0, self.settings.dimensions), dtype=np.float32)
        if role not in self._encoders:
            unit = self.settings.similarity == "cosine"
            self._encoders[role] = Encoder(self.model, role=role, prompt=prompt, unit=unit)
        # Queries are plain in any case: a search must not make what other threads encode at this moment plain too.
        with uncalibrated(self.model) if role == "document" else nullcontext():
            return self._encoders[role].encode(texts)

    def _parts(self, query: NDArray[np.float32], hits: Sequence[Hit], wanted: bool) -> Sequence[str | None]:
        """For each document the part of it that is most like the query, where that is wanted."""
        if not hits or not wanted:
            return [None if hit.chunk is None else hit.text for hit in hits]
        size = min(_PART_TOKENS, room_for_text(self.model, self.settings.document_prompt))
        cut = Chunker(size, cut="tokens").chunks(self.model, [hit.text or "" for hit in hits])
        pieces = [[piece for piece in of_document if piece.strip()][:_MOST_PARTS] for of_document in cut]
        vectors = self._encode(list(itertools.chain(*pieces)), "document", self.settings.document_prompt)
        scores = np.split(vectors @ query, np.cumsum([len(of_document) for of_document in pieces])[:-1])
        return [
            of_document[int(alike.argmax())].strip() if of_document else None
            for of_document, alike in zip(pieces, scores, strict=True)
        ]

    def rows(self) -> Iterator[Hit]:
        """Every document with its vector, in no particular order."""
        return self._current().rows()

    @property
    def columns(self) -> dict[str, str]:
        """The metadata columns that a filter can use, and their types."""
        return self._current().columns()

    def __len__(self) -> int:
        return self._current().count()

    def close(self) -> None:
        """Let go of files and connections."""
        self._store.close()

    def __enter__(self) -> Index:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def open_index(
    store: str | os.PathLike[str],
    model: SentenceTransformer | None = None,
    *,
    table: str | None = None,
    device: str | None = None,
) -> Index:
    """Open an index for searching.

    Args:
        store: what `index` was given as its store.
        model: the model that made the index, if it is loaded already; by default it is loaded when a query comes.
        table: in PostgreSQL.
        device: where the model goes.

    Example:
        >>> open_index("my-index").search("Who looks after the pottery?", k=3)  # doctest: +SKIP
    """
    return Index(store, model, table=table, device=device)
