"""From rows to shards: what is new or changed, cut at the same places whenever the same rows come."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from evenspan.corpus.documents import BadRowError, Document, Row, RowRules
from evenspan.encoding import Encoder
from evenspan.indexing.columns import Columns, fit, table, widen
from evenspan.indexing.ids import SeenIds
from evenspan.indexing.reading import next_rows
from evenspan.indexing.rejects import Rejects
from evenspan.indexing.stores.base import Store

_SHARD_CHARACTERS = 32_000_000


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


class IndexPlan:
    """Goes through a source once; counts what it leaves out."""

    def __init__(self, rules: RowRules, store: Store, rejects: Rejects, encoder: Encoder, size: ShardSize) -> None:
        self._rules, self._store, self._rejects, self._encoder, self._size = rules, store, rejects, encoder, size
        self.columns = store.columns()
        self.unchanged = 0
        self.position = 0

    def shards(self, rows: Iterator[Row]) -> Iterator[Shard]:
        """Every shard that has to be encoded, in order; the last one may be small."""
        shard, seen = Shard(), SeenIds()
        settled = self._store.count() > 0  # the first rows of a new index show what its columns hold
        given = dict(self.columns)
        try:
            while chunk := next_rows(rows):
                documents = [document for row in chunk if (document := self._document(row, seen)) is not None]
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

    def _document(self, row: Row, seen: SeenIds) -> Document | None:
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
