"""From rows to shards: what is new or changed, cut at the same places whenever the same rows come; and how to go about it."""

from __future__ import annotations

import itertools
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from evenspan.corpus.documents import BadRowError, Document, Place, Row, RowRules
from evenspan.errors import require_extra
from evenspan.indexing.columns import WORDS, Columns, arrow_type, fit, widen, with_vectors
from evenspan.indexing.ids import SeenIds
from evenspan.indexing.layout import Layout
from evenspan.indexing.pieces import MOST_CHUNKS, Cutter, Piece, part, piece_columns, searched_words
from evenspan.indexing.reading import Rejects, next_rows
from evenspan.indexing.stores.base import Store
from evenspan.models.features import TokenizedTexts
from evenspan.models.windows import window_sizes

ENGINES = ("local", "ray")
_SHARD_CHARACTERS = 32_000_000
_FEW = 256  # documents that are tokenized together: what encodes them begins early
_DOUBLED = "the id has been used before"


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
    kept: bool  # its text, and so its vectors: only metadata are new
    pieces: Sequence[Piece]  # a row each


@dataclass
class Shard:
    """Documents that are encoded, written and committed together; or whose vectors are kept."""

    entries: list[ShardEntry] = field(default_factory=list)
    columns: Columns = field(default_factory=dict)
    position: int = 0  # how far the source was read when the shard was cut
    pieces: int = 0
    full_text: bool = False  # whether the rows hold their words
    characters: int = 0
    read: int = 0  # tokens that the model reads of the documents
    kept: bool = False
    handed: int = 0  # rows that are being encoded already
    sizes: Iterator[int] = field(default_factory=window_sizes)
    size: int = field(init=False)  # of the window that is handed over next

    def __post_init__(self) -> None:
        self.size = next(self.sizes)

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

    def portions(self, *, whole: bool = False) -> Iterator[Portion]:
        """The rows that can be handed over to be encoded, in windows whose sizes the shard alone decides.

        A window goes when there is more than it holds: the last one goes when the shard is whole, and is never empty.
        """
        while not self.kept and self.pieces - self.handed > self.size:
            yield self._portion(self.size, is_last=False)
        if whole:
            yield self._portion(self.pieces - self.handed, is_last=True)

    def _portion(self, size: int, *, is_last: bool) -> Portion:
        rows = list(itertools.islice(self.rows(), self.handed, self.handed + size))
        self.handed, self.size = self.handed + size, next(self.sizes)
        ids = [piece.ids for _, piece in rows if piece.ids is not None]
        if len(ids) == len(rows):
            return Portion(self, TokenizedTexts(ids, [piece.tokens for _, piece in rows]), is_last)
        return Portion(self, [part(entry.document.text, piece.span) for entry, piece in rows], is_last)

    def names(self) -> list[tuple[str, bytes]]:
        """The id and content digest of the document of each row."""
        return [(entry.document.id, entry.digest) for entry, _ in self.rows()]

    def add(self, entry: ShardEntry, max_tokens: int) -> None:
        """Add a document, of which the model reads so many tokens at a time at most."""
        self.entries.append(entry)
        self.characters += len(entry.document.text)
        self.read += 0 if self.kept else sum(min(piece.tokens, max_tokens) for piece in entry.pieces)
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

    def save(self, store: Store, vectors: NDArray[np.float32] | None, keep_text: bool) -> None:
        """Write and commit the documents, with the vectors that they have in the store unless new ones are given."""
        store.set_columns(self.columns)
        if vectors is None:
            vectors = store.vectors([entry.document.id for entry in self.entries])
        rows = with_vectors(self.table(keep_text), vectors, store.made_with().vectors)
        store.commit(store.writer().write(store.reserve(), rows), self.names())


@dataclass(frozen=True)
class Portion:
    """Rows of a shard that are encoded together, while the rest of it may still be read; the last ones complete it."""

    shard: Shard
    texts: list[str] | TokenizedTexts
    is_last: bool


class IndexPlan:
    """Goes through a source once; counts what it leaves out."""

    def __init__(self, rules: RowRules, store: Store, rejects: Rejects, cutter: Cutter, size: ShardSize) -> None:
        self._rules, self._store, self._rejects, self._cutter, self._size = rules, store, rejects, cutter, size
        self.columns, self.unchanged, self.unread = store.columns(), 0, 0
        self.seen = SeenIds()

    def shards(self, rows: Iterator[Row]) -> Generator[Shard, None, None]:
        """Every shard, once it is whole."""
        yield from (portion.shard for portion in self.portions(rows) if portion.is_last)

    def portions(self, rows: Iterator[Row]) -> Generator[Portion, None, None]:
        """Everything that has to be encoded, in order, a shard after the other; and the shards whose vectors are kept.

        The last shard of each kind may be small.
        """
        open_shards = {kept: self._shard(kept) for kept in (False, True)}
        settled = self._store.count() > 0  # the first rows of a new index show what its columns hold
        given = dict(self.columns)
        while chunk := next_rows(rows):
            documents = [document for row in chunk if (document := self._document(row)) is not None]
            positions = {row.place: row.position for row in chunk}
            self._rejects.seen(len(chunk))
            if not settled:
                for document in documents:
                    widen(self.columns, document.metadata)
                self.columns.update(given)
                settled = True
            for start in range(0, len(documents), _FEW):
                for entry in self._new(documents[start : start + _FEW]):
                    shard = open_shards[entry.kept]
                    shard.add(entry, self._cutter.max_tokens)
                    full = self._full(shard)
                    if full:
                        shard.columns, shard.position = dict(self.columns), positions[entry.document.place]
                        open_shards[entry.kept] = self._shard(entry.kept)
                    yield from shard.portions(whole=full)
            for shard in open_shards.values():
                shard.columns, shard.position = dict(self.columns), chunk[-1].position
        self._rejects.seen(0, last=True)
        for shard in open_shards.values():
            if shard.entries:
                yield from shard.portions(whole=True)

    def _document(self, row: Row) -> Document | None:
        name = None
        try:
            document = self._rules.document(row)
            name = document.id
            refusal = self._store.refusal(document)
            if refusal is None and self.seen.add(document.id):
                return document
            raise BadRowError(refusal or _DOUBLED)
        except BadRowError as error:
            self.unread += row.fields is None
            self._reject(row.place, str(error), name, self._rules.name(row))
            return None

    def _reject(self, place: Place, reason: str, shown: str | None, name: str | None, *, added: bool = False) -> None:
        """Leave a row out, and what it may have been in the index before."""
        self._rejects.add(place, reason, shown)
        if name is not None and reason != _DOUBLED:
            self.seen.reject(name, was_added=added)

    def _new(self, documents: list[Document]) -> list[ShardEntry]:
        """Documents that are not in the index as they are now."""
        digests = [document.digest() for document in documents]
        stored = self._store.digests([document.id for document in documents])
        chosen: list[tuple[Document, bytes, Mapping[str, Any], bool, bool]] = []
        for document, digest, before in zip(documents, digests, stored, strict=True):
            same_text = before is not None and before[:8] == digest[:8]
            if digest == before or (before is not None and not same_text and before == document.first_digest()):
                self.unchanged += 1
                continue
            try:
                chosen.append((document, digest, fit(self.columns, document), before is not None, same_text))
            except BadRowError as error:
                self._reject(document.place, str(error), document.id, document.id, added=True)
        pieces = self._cutter.pieces([document.text for document, *_ in chosen])
        entries = [ShardEntry(*parts, own) for parts, own in zip(chosen, pieces, strict=True)]
        for entry in entries:
            if len(entry.pieces) > MOST_CHUNKS:
                reason, name = f"more than {MOST_CHUNKS:,} chunks", entry.document.id
                self._reject(entry.document.place, reason, name, name, added=True)
        return [entry for entry in entries if len(entry.pieces) <= MOST_CHUNKS]

    def _shard(self, kept: bool) -> Shard:
        return Shard(kept=kept, full_text=self._cutter.full_text)

    def _full(self, shard: Shard) -> bool:
        return (
            len(shard.entries) >= self._size.documents
            or shard.read >= self._size.tokens
            or shard.pieces >= MOST_CHUNKS
            or shard.characters >= _SHARD_CHARACTERS
        )
