"""The interface of a store."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evenspan.corpus.documents import Document
from evenspan.indexing.columns import CHUNK, END, RESERVED, START, Columns
from evenspan.indexing.filters import Filter
from evenspan.indexing.manifest import Written
from evenspan.indexing.settings import IndexSettings


@dataclass(frozen=True)
class Hit:
    """A document, or a chunk of one, that a search found; its vector only where all rows are read."""

    id: str
    score: float
    text: str | None
    metadata: Mapping[str, Any]
    chunk: int | None = None  # its number in the document, None for a whole one
    span: tuple[int, int] | None = None  # from and to which character of the document the chunk goes
    vector: NDArray[np.float32] | None = field(default=None, repr=False, compare=False)


class ShardWriter(ABC):
    """Writes the rows of a shard, in any process; what it wrote counts when the store has committed it."""

    @abstractmethod
    def write(self, number: int, rows: Any) -> Written:
        """Write an Arrow table with `id`, `text`, `digest`, `vector` and metadata; twice does no harm."""


class Store(ABC):
    """An index on disk or in a database, opened for reading or for one run that writes."""

    location: str
    searches_words = False  # whether it can have a full-text index

    @abstractmethod
    def settings(self) -> IndexSettings | None:
        """What the index was made with, None if it is new."""

    def made_with(self) -> IndexSettings:
        """What the index was made with, which has been started."""
        settings = self.settings()
        if settings is None:
            raise RuntimeError(f"{self.location} was not started.")
        return settings

    @abstractmethod
    def start(self, settings: IndexSettings) -> None:
        """Make a new index."""

    @abstractmethod
    def columns(self) -> Columns:
        """The metadata columns and their types."""

    @abstractmethod
    def set_columns(self, columns: Columns) -> None:
        """Add the columns that are not there yet."""

    def refusal(self, document: Document) -> str | None:  # noqa: ARG002
        """Why this store cannot hold a document, None if it can."""
        return None

    @abstractmethod
    def digests(self, names: Sequence[str]) -> list[bytes | None]:
        """The content digest of each of some documents, None for those that are not there."""

    @abstractmethod
    def reserve(self) -> int:
        """A number for a shard, never given out before."""

    @abstractmethod
    def writer(self) -> ShardWriter:
        """What writes shards; can be sent to other processes."""

    @abstractmethod
    def commit(self, written: Written, documents: Sequence[tuple[str, bytes]]) -> None:
        """Make a shard count: the id and content digest of each row."""

    @abstractmethod
    def finish(self) -> None:
        """Tidy up after the last shard, and build the store's own index."""

    @abstractmethod
    def count(self) -> int:
        """How many documents there are."""

    @abstractmethod
    def search(self, vectors: NDArray[np.float32], k: int, where: Filter | None = None) -> list[list[Hit]]:
        """The `k` best documents for each vector, by inner product, best first."""

    def search_words(self, queries: Sequence[Sequence[str]], k: int, where: Filter | None = None) -> list[list[Hit]]:
        """The `k` best rows for the words of each query, by the store's own full-text index."""
        raise NotImplementedError

    @abstractmethod
    def rows(self) -> Iterator[Hit]:
        """Every document, in no particular order; the score is 0."""

    @abstractmethod
    def rejects_path(self) -> Path:
        """Where rejects are written unless told otherwise."""

    def discard(self) -> None:  # noqa: B027
        """Leave nothing behind of a run that failed before it wrote anything, where that would be a folder."""

    @abstractmethod
    def close(self) -> None:
        """Let go of files and connections."""


def hits(rows: Sequence[Mapping[str, Any]], scores: Sequence[float]) -> list[Hit]:
    """Rows of a table as hits; metadata that is not there is left out."""
    return [
        Hit(
            row["id"],
            float(score),
            row.get("text"),
            {name: value for name, value in row.items() if name not in RESERVED and value is not None},
            row.get(CHUNK),
            None if row.get(CHUNK) is None else (row[START], row[END]),
            None if row.get("vector") is None else np.asarray(row["vector"], dtype=np.float32),
        )
        for row, score in zip(rows, scores, strict=True)
    ]
