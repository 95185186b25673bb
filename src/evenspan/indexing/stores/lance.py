"""LanceDB: an embedded vector store in a folder, with an index of its own."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import lancedb
import numpy as np
import pyarrow
from numpy.typing import NDArray

from evenspan.indexing.columns import CHUNK, END, START, WORDS, Columns, arrow_type, chunk_numbers, vectors_of
from evenspan.indexing.filters import Filter, IsNull, Joined, Not, OneOf, Value
from evenspan.indexing.manifest import ROWS, Manifest, Written
from evenspan.indexing.settings import IndexSettings
from evenspan.indexing.stores.base import Hit, ShardWriter, hits
from evenspan.indexing.stores.folder import FolderStore
from evenspan.indexing.stores.lance_index import index_vectors, index_words, look_into, word_query
from evenspan.indexing.stores.options import StoreOptions

TABLE = "documents"  # of an index that replaced another: and its generation
_INDEXED_FROM = 20_000  # rows; fewer are scanned in a few milliseconds
_SPARE = 16  # more results than asked for, to make up for outdated rows
_SCANNED = 250_000  # rows that pass a filter; so many are all compared, which misses none
_MOST_BY_INDEX = 1000  # results; for more all rows are compared
_COMPACTED = 64  # commits after which files are put together
_KEPT = timedelta(hours=1)  # old versions of the table, for who is reading them
_TURNS = 20  # of a search that a run disturbs
_DAMAGES = (OSError, RuntimeError, ValueError)  # what reading a damaged table raises


def _connect(folder: Path) -> Any:
    return lancedb.connect(str(folder.resolve()))


@dataclass(frozen=True)
class LanceWriter(ShardWriter):
    """Appends a shard's rows, each with a key by which it can be found again."""

    folder: Path
    table: str

    def write(self, number: int, rows: Any) -> Written:  # noqa: D102
        # What another has written of this shard stays: it may be committed already. Twice is once, for who reads.
        keys = pyarrow.array(np.arange(rows.num_rows, dtype=np.int64) + number * ROWS)
        table = _connect(self.folder).open_table(self.table)
        table.add(_conform(rows.append_column("key", keys), table.schema))
        return Written(number, None, rows.num_rows, 0, "")


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
            self._opened = _connect(self.folder).open_table(_name(self.manifest))
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
        _connect(self.folder).create_table(name, schema=_schema(settings, columns))
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
        rows = self._table.search().where(_among(self._document, keys)).select(names).limit(None).to_arrow()
        place = {key: number for number, key in enumerate(keys)}
        order = [
            (place[key - number], number)
            for key, number in zip(rows["key"].to_pylist(), chunk_numbers(rows), strict=True)
        ]
        return vectors_of(rows)[sorted(range(len(order)), key=order.__getitem__)]

    def delete_where(self, where: Filter) -> int:  # noqa: D102
        self._table.checkout_latest()
        rows = self._table.search().where(_condition(where)).select(["key"]).limit(None).to_arrow()
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

    def nearest(self, vectors: NDArray[np.float32], k: int, where: Filter | None) -> list[list[Hit]]:  # noqa: D102
        self._table.checkout_latest()
        few = where is not None and self._table.count_rows(_condition(where)) <= _SCANNED
        exact = few or k > _MOST_BY_INDEX
        return [self._undisturbed(partial(self._nearest, vector, k, where, exact)) for vector in vectors]

    def matching(self, words: Sequence[str], k: int, where: Filter | None) -> list[Hit]:  # noqa: D102
        def find() -> list[Hit]:
            best, _ = self._best(lambda _: word_query(self._table, " ".join(words)), k, where, "_score", all_seen=True)
            return hits(best, [row.pop("_score") for row in best])

        return self._undisturbed(find)

    def _undisturbed(self, find: Callable[[], list[Hit]]) -> list[Hit]:
        """What counts at one moment: a commit between looking into the table and into the manifest would hide rows."""
        for _ in range(_TURNS):
            version = self.manifest.version()
            self._table.checkout_latest()
            hits = find()
            if self.manifest.version() == version:
                break
        return hits

    def _nearest(self, vector: NDArray[np.float32], k: int, where: Filter | None, exact: bool) -> list[Hit]:
        options = StoreOptions.parse(self.made_with().vector_index)

        def query(rows: int) -> Any:
            near = self._table.search(vector, vector_column_name="vector").distance_type("dot")
            return near.bypass_vector_index() if exact else look_into(near, options, rows)

        rows, complete = self._best(query, k, where, "_distance", all_seen=exact)
        if not complete:  # in the partitions of the index that were looked into
            return self._nearest(vector, k, where, exact=True)
        return hits(rows, [1.0 - row.pop("_distance") for row in rows])

    def _best(
        self, query: Callable[[int], Any], k: int, where: Filter | None, score: str, *, all_seen: bool
    ) -> tuple[list[dict[str, Any]], bool]:
        """The best `k` rows that count, and whether there are no more, if there are fewer."""
        names = [name for name in self._table.schema.names if name not in ("vector", "digest", WORDS)]
        asked = k + _SPARE
        while True:
            asking = query(asked).select([*names, score]).limit(asked)
            if where is not None:
                asking = asking.where(_condition(where), prefilter=True)
            fetched = asking.to_arrow().to_pylist()
            # While a run is writing, or after it died, the table may hold rows that do not count yet or no longer do.
            rows = self._live(fetched)[:k]
            if len(rows) == k or len(fetched) < asked:
                return rows, len(rows) == k or all_seen
            asked *= 4

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
            live = [row for row in self._live(batch.to_pylist()) if met is None or row["key"] not in met]
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
            self._table.delete(_among("_rowid", doubled[start : start + 10_000]))

    def _live(self, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Those of some rows that count, each once: others are not committed yet, or replaced, or written twice."""
        keys = self.manifest.keys([row["id"] for row in rows])
        live = {
            row["key"]: row
            for row, key in zip(rows[::-1], keys[::-1], strict=True)
            if row["key"] - row.get(CHUNK, 0) == key
        }
        return list(live.values())[::-1]

    def _outdate(self, keys: Sequence[int]) -> int:
        for start in range(0, len(keys), 10_000):
            self._table.checkout_latest()
            self._table.delete(_among(self._document, keys[start : start + 10_000]))
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


def _among(column: str, values: Iterable[int]) -> str:
    return f"{column} IN ({', '.join(str(int(value)) for value in values)})"


def _schema(settings: IndexSettings, columns: Columns) -> Any:
    own = {
        "id": pyarrow.string(),
        "text": pyarrow.large_string() if settings.text else None,
        "digest": pyarrow.binary(16),
        "vector": pyarrow.list_(pyarrow.type_for_alias(settings.vectors), settings.dimensions),
        "key": pyarrow.int64(),
        WORDS: pyarrow.large_string() if settings.full_text else None,
    }
    if settings.chunk_tokens is not None:
        own |= {CHUNK: pyarrow.int32(), START: pyarrow.int64(), END: pyarrow.int64()}
    others = {name: arrow_type(kind) for name, kind in columns.items()}
    return pyarrow.schema([(name, kind) for name, kind in (own | others).items() if kind is not None])


def _conform(rows: Any, schema: Any) -> Any:
    """Rows with all columns of a table: a later shard may have added some."""
    arrays = [
        rows[field.name].cast(field.type) if field.name in rows.schema.names else pyarrow.nulls(len(rows), field.type)
        for field in schema
    ]
    return pyarrow.Table.from_arrays(arrays, schema=schema)


def _condition(where: Filter) -> str:
    """A condition in Lance's SQL, from names that are columns and values that are quoted."""
    if isinstance(where, Joined):  # side by side: Lance limits how deep brackets go
        return f"({f' {where.word} '.join(map(_condition, where.parts))})"
    if isinstance(where, Not):
        return f"(NOT {_condition(where.part)})"
    column = f"`{where.column}`"  # letters, digits and underscores
    if isinstance(where, IsNull):
        return f"({column} IS NULL)"
    if isinstance(where, OneOf):
        return f"({column} IN ({', '.join(map(_literal, where.values))}))"
    return f"({column} {where.sign} {_literal(where.value)})"


def _literal(value: Value) -> str:
    # Not by LanceDB's own `lit(…).to_sql()`: it leaves a quote after a backslash as it is.
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    if value == -(2**63) and isinstance(value, int):  # read as minus a number that is too large
        return "CAST('-9223372036854775808' AS BIGINT)"
    return str(value).lower() if isinstance(value, bool) else repr(value)
