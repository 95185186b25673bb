"""From rows to shards: what is new or changed, cut at the same places whenever the same rows come; and how to go about it."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from evenspan.corpus.documents import BadRowError, Document, Row, RowRules
from evenspan.errors import require_extra
from evenspan.indexing.columns import WORDS, Columns, arrow_type, fit, widen
from evenspan.indexing.layout import Layout
from evenspan.indexing.manifest import SeenIds
from evenspan.indexing.pieces import MOST_CHUNKS, Cutter, Piece, part, piece_columns, searched_words
from evenspan.indexing.reading import Rejects, next_rows
from evenspan.indexing.stores.base import Store
from evenspan.models.features import TokenizedTexts

ENGINES = ("local", "ray")
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


@dataclass(frozen=True)
class EncodingOptions:
    """Where documents are encoded, and how, which Ray's workers are told too; see `index`. Checked before any work."""

    engine: str
    address: str | None
    workers: int | None
    device: str | None
    document_prompt: str | None
    query_prompt: str | None
    batch_tokens: int | None
    keep_text: bool
    shard: ShardSize
    progress: bool
    layout: Layout = Layout()

    def __post_init__(self) -> None:
        if self.engine not in ENGINES:
            raise ValueError(f"engine must be one of {', '.join(ENGINES)}, not {self.engine!r}.")
        if self.engine == "local" and (self.address is not None or self.workers is not None):
            raise ValueError("An address and a number of workers are for the engine 'ray'.")
        for name, value in (("workers", self.workers), ("batch_tokens", self.batch_tokens)):
            if value is not None and value < 1:
                raise ValueError(f"{name} must be at least 1, not {value}.")
        if self.engine == "ray":
            require_extra("ray", "The engine 'ray'", "ray")


class ShardEntry(NamedTuple):
    """A document that is new or changed."""

    document: Document
    digest: bytes
    values: Mapping[str, Any]  # its metadata by column
    replaces: bool  # an earlier version of it
    pieces: Sequence[Piece]  # a row each


@dataclass
class Shard:
    """Documents that are encoded, written and committed together."""

    entries: list[ShardEntry] = field(default_factory=list)
    columns: Columns = field(default_factory=dict)
    position: int = 0  # how far the source was read when the shard was cut
    pieces: int = 0
    full_text: bool = False  # whether the rows hold their words
    characters: int = 0
    read: int = 0  # tokens that the model reads of the documents

    def rows(self) -> Iterator[tuple[ShardEntry, Piece]]:
        """Everything that is encoded, in order."""
        return ((entry, piece) for entry in self.entries for piece in entry.pieces)

    @property
    def tokens(self) -> list[int]:
        """How many each row has."""
        return [piece.tokens for _, piece in self.rows()]

    def own_texts(self) -> list[str]:
        """The text of each row."""
        return [part(entry.document.text, piece.span) for entry, piece in self.rows()]

    def texts(self) -> list[str] | TokenizedTexts:
        """What is encoded."""
        tokens = self.tokens
        ids = [piece.ids for _, piece in self.rows() if piece.ids is not None]
        return TokenizedTexts(ids, tokens) if len(ids) == len(tokens) else self.own_texts()

    def names(self) -> list[tuple[str, bytes]]:
        """The id and content digest of the document of each row."""
        return [(entry.document.id, entry.digest) for entry, _ in self.rows()]

    def add(self, entry: ShardEntry, max_tokens: int) -> None:
        """Take in one more."""
        self.entries.append(entry)
        self.characters += len(entry.document.text)
        self.read += sum(min(piece.tokens, max_tokens) for piece in entry.pieces)
        self.pieces += len(entry.pieces)

    def table(self, keep_text: bool) -> Any:
        """The documents without vectors, as an Arrow table."""
        import pyarrow

        names, digests = zip(*self.names(), strict=True)
        arrays: dict[str, Any] = {"id": pyarrow.array(names, pyarrow.string())}
        texts = self.own_texts() if keep_text or self.full_text else []
        if keep_text:
            # Offsets of 32 bits would limit the texts of a shard to 2 GiB.
            arrays["text"] = pyarrow.array(texts, pyarrow.large_string())
        arrays["digest"] = pyarrow.array(digests, pyarrow.binary(16))
        arrays.update(piece_columns([entry.pieces for entry in self.entries]))
        if self.full_text:
            arrays[WORDS] = pyarrow.array(map(searched_words, texts), pyarrow.large_string())
        for name, kind in self.columns.items():
            arrays[name] = pyarrow.array([entry.values.get(name) for entry, _ in self.rows()], arrow_type(kind))
        return pyarrow.table(arrays)


class IndexPlan:
    """Goes through a source once; counts what it leaves out."""

    def __init__(self, rules: RowRules, store: Store, rejects: Rejects, cutter: Cutter, size: ShardSize) -> None:
        self._rules, self._store, self._rejects, self._cutter, self._size = rules, store, rejects, cutter, size
        self.columns, self.unchanged = store.columns(), 0

    def shards(self, rows: Iterator[Row]) -> Generator[Shard, None, None]:
        """Every shard that has to be encoded, in order; the last one may be small."""
        shard, seen = self._shard(), SeenIds()
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
                for entry in self._new(documents):
                    shard.add(entry, self._cutter.max_tokens)
                    if self._full(shard):
                        shard.columns, shard.position = dict(self.columns), positions[entry.document.place]
                        yield shard
                        shard = self._shard()
                shard.columns, shard.position = dict(self.columns), chunk[-1].position
            self._rejects.seen(0, last=True)
            if shard.entries:
                yield shard
        finally:
            seen.close()

    def _document(self, row: Row, seen: SeenIds) -> Document | None:
        name = None
        try:
            document = self._rules.document(row)
            name = document.id
            refusal = self._store.refusal(document)
            if refusal is None and seen.add(document.id):
                return document
            raise BadRowError(refusal or "the id has been used before")
        except BadRowError as error:
            self._rejects.add(row.place, str(error), name)
            return None

    def _new(self, documents: list[Document]) -> list[ShardEntry]:
        """Documents that are not in the index as they are now."""
        digests = [document.digest() for document in documents]
        stored = self._store.digests([document.id for document in documents])
        chosen: list[tuple[Document, bytes, Mapping[str, Any], bool]] = []
        for document, digest, before in zip(documents, digests, stored, strict=True):
            if digest == before:
                self.unchanged += 1
                continue
            try:
                chosen.append((document, digest, fit(self.columns, document), before is not None))
            except BadRowError as error:
                self._rejects.add(document.place, str(error), document.id)
        pieces = self._cutter.pieces([document.text for document, *_ in chosen])
        entries = [ShardEntry(*parts, own) for parts, own in zip(chosen, pieces, strict=True)]
        for entry in entries:
            if len(entry.pieces) > MOST_CHUNKS:
                self._rejects.add(entry.document.place, f"more than {MOST_CHUNKS:,} chunks", entry.document.id)
        return [entry for entry in entries if len(entry.pieces) <= MOST_CHUNKS]

    def _shard(self) -> Shard:
        return Shard(full_text=self._cutter.full_text)

    def _full(self, shard: Shard) -> bool:
        return (
            len(shard.entries) >= self._size.documents
            or shard.read >= self._size.tokens
            or shard.pieces >= MOST_CHUNKS
            or shard.characters >= _SHARD_CHARACTERS
        )
