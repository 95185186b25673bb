"""The interface of a store."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evenspan.corpus.documents import Document
from evenspan.indexing.columns import CHUNK, END, RESERVED, START, Columns
from evenspan.indexing.filters import Filter
from evenspan.indexing.ids import SeenIds
from evenspan.indexing.manifest import Written
from evenspan.indexing.settings import IndexSettings

SCANNED = 250_000  # rows that pass a filter; so many are all compared, which misses none
MOST_BY_INDEX = 1000  # results; for more all rows are compared


class ReplacedError(RuntimeError):
    """The index was replaced after this store had opened it."""


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
    """Writes the rows of a shard, in any process; what it wrote counts when the store has committed it.

    Two of them may write the same shard: one that was given up may still be alive.
    """

    @abstractmethod
    def write(self, number: int, rows: Any) -> Written:
        """Write an Arrow table with `id`, `text`, `digest`, `vector` and metadata; twice does no harm."""


class Store(ABC):
    """An index on disk or in a database, opened for reading or for one run that writes.

    A run that replaces an index opens what is built beside it: all methods are about that, and `finish` puts it in the
    place of the other, in one step. Until then the other one serves.
    """

    location: str
    searches_words = False  # whether it can have a full-text index
    generation: str  # another one after the index was replaced; empty in those of the first format

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
        """Make a new index; what an unfinished run with other settings left goes."""

    @abstractmethod
    def change_vector_index(self, settings: IndexSettings) -> None:
        """Take in settings in which that alone is new, and drop the index of vectors: `finish` builds another."""

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
    def vectors(self, names: Sequence[str]) -> NDArray[np.float32]:
        """The vectors of some documents, which are all there: of each those of its rows, in order."""

    @abstractmethod
    def reserve(self) -> int:
        """A number for a shard, never given out before."""

    @abstractmethod
    def writer(self) -> ShardWriter:
        """What writes shards; can be sent to other processes."""

    @abstractmethod
    def commit(self, written: Written, documents: Sequence[tuple[str, bytes]]) -> None:
        """Make a shard count: the id and content digest of the document of each row."""

    @abstractmethod
    def delete(self, names: Sequence[str]) -> int:
        """Remove documents, in one commit; returns how many of them there were."""

    @abstractmethod
    def delete_where(self, where: Filter) -> int:
        """Remove the documents that pass a filter, in one commit; returns how many."""

    @abstractmethod
    def prune(self, seen: SeenIds) -> int:
        """Remove the documents that a run has not met, in one commit; returns how many."""

    @abstractmethod
    def finish(self) -> None:
        """Tidy up after the last commit, build the store's own index, and take the place of what is replaced."""

    @abstractmethod
    def verify(self, *, repair: bool) -> list[str]:
        """Read everything; returns what is wrong, in sentences. Repairing forgets documents that cannot be read."""

    @abstractmethod
    def count(self) -> int:
        """How many documents there are."""

    def search(self, vectors: NDArray[np.float32], k: int, where: Filter | None = None) -> list[list[Hit]]:
        """The `k` best rows for each vector, by inner product, best first.

        Raises `ReplacedError` if the index has another generation by now: its vectors may be of another model.
        """
        return self._of_one_generation(lambda: self.nearest(vectors, k, where))

    def _of_one_generation(self, find: Callable[[], list[list[Hit]]]) -> list[list[Hit]]:
        try:
            hits = find()
        except Exception as error:
            if self.replaced():  # and what was read is no longer there
                raise ReplacedError(self.location) from error
            raise
        if self.replaced():
            raise ReplacedError(self.location)
        return hits

    @abstractmethod
    def nearest(self, vectors: NDArray[np.float32], k: int, where: Filter | None) -> list[list[Hit]]:
        """What `search` finds, of whatever generation."""

    @abstractmethod
    def replaced(self) -> bool:
        """Whether the index has another generation than the one that was opened."""

    def search_words(self, queries: Sequence[Sequence[str]], k: int, where: Filter | None = None) -> list[list[Hit]]:
        """The `k` best rows for the words of each query, by the store's own full-text index; as `search` otherwise."""
        return self._of_one_generation(lambda: [self.matching(words, k, where) if words else [] for words in queries])

    def matching(self, words: Sequence[str], k: int, where: Filter | None) -> list[Hit]:
        """What `search_words` finds, of whatever generation."""
        raise NotImplementedError

    @abstractmethod
    def rows(self) -> Iterator[Hit]:
        """Every row, in no particular order; the score is 0."""

    @abstractmethod
    def rejects_path(self) -> Path:
        """Where rejects are written unless told otherwise."""

    def check_run(self) -> None:  # noqa: B027
        """Raise `TakenOverError` if another run has followed: it may have removed what this one was about to commit."""

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
