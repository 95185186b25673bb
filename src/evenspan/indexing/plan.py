"""From rows to shards: what is new or changed, cut at the same places whenever the same rows come."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from evenspan.corpus.documents import BadRowError, Document, Row, RowRules
from evenspan.encoding import Encoder
from evenspan.indexing.columns import Columns, fit, table, widen
from evenspan.indexing.manifest import Seen
from evenspan.indexing.rejects import Rejects
from evenspan.indexing.stores.base import Store

_ROWS = 1000  # looked up at a time; the first of them also settle the types of columns
_CHARACTERS = 8_000_000  # likewise
_SHARD_CHARACTERS = 32_000_000
Item = TypeVar("Item")


@dataclass(frozen=True)
class ShardSize:
    """A shard is full when it has so many documents or so many tokens: what a crash can cost."""

    documents: int = 4096
    tokens: int = 2_000_000

    def __post_init__(self) -> None:
        if not 1 <= self.documents <= 1 << 20:
            raise ValueError(f"A shard holds 1 to {1 << 20} documents, not {self.documents}.")
        if self.tokens < 1:
            raise ValueError(f"A shard holds at least 1 token, not {self.tokens}.")


@dataclass
class Shard:
    """Documents that are encoded, written and committed together."""

    documents: list[Document] = field(default_factory=list)
    digests: list[bytes] = field(default_factory=list)
    values: list[Mapping[str, Any]] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)
    replaced: int = 0
    columns: Columns = field(default_factory=dict)
    position: int = 0  # how far the source was read when the shard was cut
    characters: int = 0
    read: int = 0  # tokens that the model reads of the documents

    def add(self, document: Document, digest: bytes, values: Mapping[str, Any], tokens: int, read: int) -> None:
        """Take a document in, of which the model reads `read` of its tokens."""
        self.documents.append(document)
        self.digests.append(digest)
        self.values.append(values)
        self.tokens.append(tokens)
        self.characters += len(document.text)
        self.read += read

    def names(self) -> list[tuple[str, bytes]]:
        """The id and content digest of each document."""
        return [(document.id, digest) for document, digest in zip(self.documents, self.digests, strict=True)]

    def table(self, keep_text: bool) -> Any:
        """The documents without vectors."""
        return table(self.documents, self.digests, self.values, self.columns, keep_text=keep_text)


class Plan:
    """Goes through a source once; counts what it leaves out."""

    def __init__(self, rules: RowRules, store: Store, rejects: Rejects, encoder: Encoder, size: ShardSize) -> None:
        self._rules, self._store, self._rejects, self._encoder, self._size = rules, store, rejects, encoder, size
        self.columns = store.columns()
        self.unchanged = 0
        self.position = 0

    def shards(self, rows: Iterable[Row]) -> Iterator[Shard]:
        """Every shard that has to be encoded, in order; the last one may be small."""
        shard, seen, remaining = Shard(), Seen(), iter(rows)
        settled = self._store.count() > 0  # the first rows of a new index show what its columns hold
        given = dict(self.columns)
        try:
            while chunk := _chunk(remaining):
                documents = [found for row in chunk if (found := self._document(row, seen)) is not None]
                positions = {row.place: row.position for row in chunk}
                self._rejects.seen(len(chunk))
                if not settled:
                    for document in documents:
                        widen(self.columns, document.metadata)
                    self.columns.update(given)
                    settled = True
                for replaces, document, digest, values, tokens in self._new(documents):
                    self.position = positions[document.place]
                    shard.replaced += replaces
                    shard.add(document, digest, values, tokens, min(tokens, self._encoder.max_tokens))
                    if self._full(shard):
                        yield self._cut(shard)
                        shard = Shard()
                self.position = chunk[-1].position
            self._rejects.seen(0, last=True)
            if shard.documents:
                yield self._cut(shard)
        finally:
            seen.close()

    def _document(self, row: Row, seen: Seen) -> Document | None:
        name = None
        try:
            document = self._rules.document(row)
            name = document.id
            refusal = self._store.refusal(document)
            if refusal is not None:
                raise BadRowError(refusal)
            if not seen.add(document.id):
                raise BadRowError("the id has been used before")
        except BadRowError as error:
            self._rejects.add(row.place, str(error), name)
            return None
        return document

    def _new(self, documents: list[Document]) -> Iterator[tuple[bool, Document, bytes, Mapping[str, Any], int]]:
        """Documents that are not in the index as they are now: whether they replace one, and what a shard takes in."""
        digests = [document.digest() for document in documents]
        stored = self._store.digests([document.id for document in documents])
        chosen: list[tuple[bool, Document, bytes, Mapping[str, Any]]] = []
        for document, digest, before in zip(documents, digests, stored, strict=True):
            if digest == before:
                self.unchanged += 1
                continue
            try:
                chosen.append((before is not None, document, digest, fit(self.columns, document)))
            except BadRowError as error:
                self._rejects.add(document.place, str(error), document.id)
        counts = self._encoder.count_tokens([entry[1].text for entry in chosen])
        for entry, tokens in zip(chosen, counts, strict=True):
            yield (*entry, tokens)

    def _full(self, shard: Shard) -> bool:
        return (
            len(shard.documents) >= self._size.documents
            or shard.read >= self._size.tokens
            or shard.characters >= _SHARD_CHARACTERS
        )

    def _cut(self, shard: Shard) -> Shard:
        shard.columns, shard.position = dict(self.columns), self.position
        return shard


def _chunk(rows: Iterator[Row]) -> list[Row]:
    """The next rows: few enough to hold, however long they are."""
    found: list[Row] = []
    characters = 0
    for row in rows:
        found.append(row)
        characters += sum(len(value) for value in (row.fields or {}).values() if isinstance(value, str))
        if len(found) == _ROWS or characters >= _CHARACTERS:
            break
    return found


class Prefetched(Iterator[Item]):
    """Runs an iterator in a thread of its own, one item ahead: reading goes on while the model computes."""

    def __init__(self, items: Iterator[Item]) -> None:
        self._queue: queue.Queue[tuple[str, Any]] = queue.Queue(maxsize=1)
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(items,), daemon=True)
        self._thread.start()

    def __next__(self) -> Item:
        kind, value = self._queue.get()
        if kind == "item":
            item: Item = value
            return item
        self._queue.put((kind, value))  # for whoever asks again
        if kind == "error":
            raise value
        raise StopIteration

    def close(self) -> None:
        """Stop the thread and wait for it, unless it waits itself, for a pipe that nobody writes to."""
        self._stopped.set()
        self._thread.join(timeout=10)

    def _run(self, items: Iterator[Item]) -> None:
        try:
            for item in items:
                if not self._offer("item", item):
                    break
            else:
                self._offer("end", None)
        except BaseException as error:
            self._offer("error", error)
        finally:
            close = getattr(items, "close", None)
            if close is not None:
                close()

    def _offer(self, kind: str, value: Any) -> bool:
        while not self._stopped.is_set():
            try:
                self._queue.put((kind, value), timeout=0.1)
            except queue.Full:
                continue
            return True
        return False
