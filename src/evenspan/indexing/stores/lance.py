"""LanceDB: an embedded vector store in a folder, with an index of its own."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Any

import numpy as np
import pyarrow
from numpy.typing import NDArray

from evenspan.indexing.columns import CHUNK, WORDS, Columns, arrow_type, chunk_numbers, vectors_of
from evenspan.indexing.filters import Filter
from evenspan.indexing.manifest import Manifest, Written
from evenspan.indexing.settings import IndexSettings
from evenspan.indexing.stores.base import Hit, ShardWriter, hits
from evenspan.indexing.stores.folder import FolderStore
from evenspan.indexing.stores.lance_index import index_vectors, index_words
from evenspan.indexing.stores.lance_rows import LanceWriter, connect, rows_that_count, schema_of
from evenspan.indexing.stores.lance_search import LanceSearch, among, condition
from evenspan.indexing.stores.options import StoreOptions

TABLE = "documents"  # of an index that replaced another: and its generation
_INDEXED_FROM = 20_000  # rows; fewer are scanned in a few milliseconds
_COMPACTED = 64  # commits after which files are put together
_KEPT = timedelta(hours=1)  # old versions of the table, for who is reading them
_DAMAGES = (OSError, RuntimeError, ValueError)  # what reading a damaged table raises


class LanceStore(FolderStore):
    """A LanceDB table and a manifest that says which of its rows count."""

    kind = "lance"
    searches_words = True
    content = (f"{TABLE}*.lance",)
    _opened: Any = None
    _commits = 0

    @property
    def _table(self) -> Any:
        if self._opened is None:
            self._opened = connect(self.folder).open_table(_name(self.manifest))
        return self._opened

    def names(self, manifest: Manifest) -> set[str]:  # noqa: D102
        return set() if manifest.get("settings") is None else {f"{_name(manifest)}.lance"}

    def create(self, settings: IndexSettings) -> dict[str, Any]:  # noqa: D102
        name = f"{TABLE}-{self.generation}" if self._beside else TABLE
        self._create(name, settings, {})
        return {"table": name}

    def set_columns(self, columns: Columns) -> None:  # noqa: D102
        self._table.checkout_latest()  # writers open the table for themselves
        missing = [(name, kind) for name, kind in columns.items() if name not in self._table.schema.names]
        if missing:
            self._table.add_columns(pyarrow.schema([(name, arrow_type(kind)) for name, kind in missing]))
        super().set_columns(columns)

    def recover(self) -> None:
        """Delete rows that do not count, and forget documents that are not there, if their numbers differ."""
        if self.settings() is None:
            return
        try:
            self._reconcile()
        except _DAMAGES as error:
            if not self._go_back():
                reason = (str(error).splitlines() or [""])[0]
                raise RuntimeError(
                    f"{self.location} cannot be read ({reason}): see `evenspan verify` with --repair."
                ) from error
            self._reconcile(always=True)
        self.set_columns(self.columns())  # one that was added before its shard was committed is used by it again

    def verify(self, *, repair: bool) -> list[str]:  # noqa: D102
        problems = []
        if not self._readable():
            problems.append(f"{self.location}: files of the table {_name(self.manifest)} are damaged or missing")
        else:
            lost = self.manifest.missing(self._keys().tolist())
            problems += [f"{self.location}: {lost:,} documents are lost"] if lost else []
        if repair:
            self._restore()
        return problems

    def _restore(self) -> None:
        """Go back to what can be read, and forget documents that are not there."""
        if not self._go_back():
            name = _name(self.manifest)
            self._remove(f"{name}.lance")
            self._create(name, self.made_with(), self.columns())
        self._reconcile(always=True)

    def _create(self, name: str, settings: IndexSettings, columns: Columns) -> None:
        connect(self.folder).create_table(name, schema=schema_of(settings, columns))
        self._opened = None

    def writer(self) -> ShardWriter:  # noqa: D102
        return LanceWriter(self.folder, _name(self.manifest))

    def commit(self, written: Written, documents: Sequence[tuple[str, bytes]]) -> None:  # noqa: D102
        self._outdate(self.manifest.commit(written, documents))
        self._commits += 1
        if self._commits % _COMPACTED == 0:  # each commit is a version that lists all files
            self._table.checkout_latest()  # the writer opened it for itself
            self._table.optimize(cleanup_older_than=_KEPT)

    def vectors(self, names: Sequence[str]) -> NDArray[np.float32]:  # noqa: D102
        keys = [key for key in self.manifest.keys(names) if key is not None]
        self._table.checkout_latest()
        names = ["key", "vector", *([CHUNK] if self._chunked else [])]
        rows = self._table.search().where(among(self._document, keys)).select(names).limit(None).to_arrow()
        place = {key: number for number, key in enumerate(keys)}
        order = [
            (place[key - number], number)
            for key, number in zip(rows["key"].to_pylist(), chunk_numbers(rows), strict=True)
        ]
        return vectors_of(rows)[sorted(range(len(order)), key=order.__getitem__)]

    def delete_where(self, where: Filter) -> int:  # noqa: D102
        self._table.checkout_latest()
        rows = self._table.search().where(condition(where)).select(["key"]).limit(None).to_arrow()
        return self._outdate(self.manifest.delete_keys(rows["key"].to_pylist()))

    def tidy(self) -> None:
        """Compact, forget old versions, and bring the vector index up to date."""
        self._reconcile()  # a worker that was given up may have written after all
        self._build_indexes()
        self._table.optimize(cleanup_older_than=_KEPT)

    def _build_indexes(self) -> None:
        rows, settings = self._table.count_rows(), self.made_with()
        indexed = [name for index in self._table.list_indices() for name in index.columns]
        options = StoreOptions.parse(settings.vector_index)
        if "vector" not in indexed and rows >= (_INDEXED_FROM if options.index == "auto" else 1):
            index_vectors(self._table, rows, options)
        if settings.full_text and WORDS not in indexed and rows:
            index_words(self._table)

    def change_vector_index(self, settings: IndexSettings) -> None:  # noqa: D102
        super().change_vector_index(settings)
        for index in self._table.list_indices():
            if "vector" in index.columns:
                self._table.drop_index(index.name)

    def _search(self) -> LanceSearch:
        return LanceSearch(self._table, self.manifest, StoreOptions.parse(self.made_with().vector_index))

    def nearest(self, vectors: NDArray[np.float32], k: int, where: Filter | None) -> list[list[Hit]]:  # noqa: D102
        return self._search().nearest(vectors, k, where)

    def matching(self, words: Sequence[str], k: int, where: Filter | None) -> list[Hit]:  # noqa: D102
        return self._search().matching(words, k, where)

    @property
    def _chunked(self) -> bool:
        return CHUNK in self._table.schema.names

    @property
    def _document(self) -> str:
        """The key that the manifest has of a row's document: that of its first row."""
        return f"(key - {CHUNK})" if self._chunked else "key"

    def _agrees(self) -> bool:
        """Whether there are as many documents in the table as there should be."""
        return bool(self._table.count_rows(f"{CHUNK} = 0" if self._chunked else None) == self.count())

    def rows(self) -> Iterator[Hit]:  # noqa: D102
        self._table.checkout_latest()
        met: set[int] | None = None if self._agrees() else set()
        for batch in self._table.search().limit(None).to_batches(1024):
            live = [
                row for row in rows_that_count(self.manifest, batch.to_pylist()) if met is None or row["key"] not in met
            ]
            if met is not None:
                met.update(row["key"] for row in live)
            yield from hits(live, [0.0] * len(live))

    def _keys(self) -> NDArray[np.int64]:
        """The key of the document of each row."""
        self._table.checkout_latest()
        rows = self._table.search().select(["key", *([CHUNK] if self._chunked else [])]).limit(None).to_arrow()
        return np.asarray(rows["key"], dtype=np.int64) - chunk_numbers(rows)

    def _reconcile(self, *, always: bool = False) -> None:
        """Bring table and manifest into line: rows that do not count, documents that are not there, rows that are twice."""
        self._table.checkout_latest()
        if self._agrees() and not always:
            return
        for strays in self.manifest.reconcile([self._keys().tolist()]):
            self._outdate(strays)
        self._table.checkout_latest()
        if self._agrees():
            return
        rows = self._table.search().select(["key"]).with_row_id(with_row_id=True).limit(None).to_arrow()
        _, first = np.unique(rows["key"].to_numpy(), return_index=True)
        doubled = np.delete(rows["_rowid"].to_numpy(), first)
        for start in range(0, len(doubled), 10_000):
            self._table.delete(among("_rowid", doubled[start : start + 10_000]))

    def _outdate(self, keys: Sequence[int]) -> int:
        for start in range(0, len(keys), 10_000):
            self._table.checkout_latest()
            self._table.delete(among(self._document, keys[start : start + 10_000]))
        return len(keys)

    def _readable(self) -> bool:
        with contextlib.suppress(*_DAMAGES):
            self._table.checkout_latest()
            self._scan()
            return True
        return False

    def _go_back(self) -> bool:
        """Whether every row can be read, if need be after going back to an earlier version of the table."""
        if self._readable():
            return True
        versions: list[int] = []
        with contextlib.suppress(*_DAMAGES):
            versions = sorted((entry["version"] for entry in self._table.list_versions()), reverse=True)
        for version in versions:
            with contextlib.suppress(*_DAMAGES):
                self._table.checkout(version)
                self._scan()
                self._table.restore()
                return True
        return False

    def _scan(self) -> None:
        for _ in self._table.search().limit(None).to_batches(4096):
            pass


def _name(manifest: Manifest) -> str:
    return str(manifest.get("table") or TABLE)
