"""LanceDB: an embedded vector store in a folder, with an index of its own."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import lancedb
import numpy as np
import pyarrow
from numpy.typing import NDArray

from evenspan.indexing.columns import Columns, arrow_type
from evenspan.indexing.filters import Filter, IsNull, Joined, Not, OneOf, Value
from evenspan.indexing.manifest import ROWS, Written
from evenspan.indexing.settings import IndexSettings
from evenspan.indexing.stores.base import Hit, ShardWriter, hits
from evenspan.indexing.stores.folder import FolderStore

TABLE = "documents"
_INDEXED_FROM = 20_000  # rows; fewer are scanned in a few milliseconds
_PROBES = 40  # partitions of the index that a search looks into
_SPARE = 16  # more results than asked for, to make up for outdated rows
_DAMAGES = (OSError, RuntimeError, ValueError)  # what reading a damaged table raises


def _connect(folder: Path) -> Any:
    return lancedb.connect(str(folder.resolve()))


@dataclass(frozen=True)
class LanceWriter(ShardWriter):
    """Appends a shard's rows, each with a key by which it can be found again."""

    folder: Path

    def write(self, number: int, rows: Any) -> Written:  # noqa: D102
        keys = pyarrow.array(np.arange(rows.num_rows, dtype=np.int64) + number * ROWS)
        table = _connect(self.folder).open_table(TABLE)
        written = f"key >= {number * ROWS} AND key < {(number + 1) * ROWS}"
        if table.count_rows(written):  # by a worker that died
            table.delete(written)
        table.add(_conform(rows.append_column("key", keys), table.schema))
        return Written(number, None, rows.num_rows, 0, "")


class LanceStore(FolderStore):
    """A LanceDB table and a manifest that says which of its rows count."""

    kind = "lance"
    content = (f"{TABLE}.lance",)
    _opened: Any = None

    @property
    def _table(self) -> Any:
        if self._opened is None:
            self._opened = _connect(self.folder).open_table(TABLE)
        return self._opened

    def start(self, settings: IndexSettings) -> None:  # noqa: D102
        self._remove(*self.content)
        self._create(settings, {})
        super().start(settings)

    def set_columns(self, columns: Columns) -> None:  # noqa: D102
        self._table.checkout_latest()  # writers open the table for themselves
        missing = [(name, kind) for name, kind in columns.items() if name not in self._table.schema.names]
        if missing:
            self._table.add_columns(pyarrow.schema([(name, arrow_type(kind)) for name, kind in missing]))
        super().set_columns(columns)

    def recover(self) -> None:
        """Go back to what can be read, forget documents that are not there, delete rows that do not count."""
        settings = self.settings()
        if settings is None:
            return
        if not self._readable():
            self._remove(*self.content)
            self._create(settings, self.columns())
        self._reconcile()
        self.set_columns(self.columns())  # one that was added before its shard was committed is used by it again

    def _create(self, settings: IndexSettings, columns: Columns) -> None:
        _connect(self.folder).create_table(TABLE, schema=_schema(settings, columns))
        self._opened = None

    def writer(self) -> ShardWriter:  # noqa: D102
        return LanceWriter(self.folder)

    def commit(self, written: Written, documents: Sequence[tuple[str, bytes]]) -> None:  # noqa: D102
        self._delete(self.manifest.commit(written, documents))

    def finish(self) -> None:
        """Compact, forget old versions, and bring the vector index up to date."""
        self._table.checkout_latest()
        if self._table.count_rows() != self.manifest.count():  # a worker that was given up wrote after all
            self._reconcile()
            if self._table.count_rows() != self.manifest.count():
                raise RuntimeError(f"{self.location} holds rows twice: two workers wrote one shard. Start it over.")
        if self.count() >= _INDEXED_FROM and not self._table.list_indices():
            self._build_index()
        self._table.optimize(cleanup_older_than=timedelta(days=1))

    def _build_index(self) -> None:
        from lancedb.index import IvfFlat

        try:
            config = IvfFlat(distance_type="dot", num_partitions=max(16, int(self.count() ** 0.5)))
            self._table.create_index("vector", config=config)
        except RuntimeError as error:  # too many vectors are alike to be told into that many parts
            reason = (str(error).splitlines() or [""])[0]
            warnings.warn(f"LanceDB cannot index these vectors ({reason}): they are scanned, slower.", stacklevel=2)

    def search(self, vectors: NDArray[np.float32], k: int, where: Filter | None = None) -> list[list[Hit]]:  # noqa: D102
        return [self._search(vector, k, where) for vector in vectors]

    def _search(self, vector: NDArray[np.float32], k: int, where: Filter | None) -> list[Hit]:
        self._table.checkout_latest()
        names = [name for name in self._table.schema.names if name not in ("vector", "digest")]
        asked = k + _SPARE
        while True:
            query = self._table.search(vector, vector_column_name="vector").distance_type("dot")
            query = query.select([*names, "_distance"]).limit(asked).nprobes(_PROBES)
            if where is not None:
                query = query.where(_condition(where), prefilter=True)
            nearest = query.to_arrow().to_pylist()
            # While a run is writing, or after it died, the table may hold rows that do not count yet or no longer do.
            rows = self._live(nearest)[:k]
            if len(rows) == k or len(nearest) < asked:
                break
            asked *= 4
        scores = [1.0 - row.pop("_distance") for row in rows]
        return hits(rows, scores)

    def rows(self) -> Iterator[Hit]:  # noqa: D102
        self._table.checkout_latest()
        for batch in self._table.search().limit(None).to_batches(1024):
            live = self._live(batch.to_pylist())
            yield from hits(live, [0.0] * len(live))

    def _reconcile(self) -> None:
        """Forget documents that are not there, and delete rows that do not count."""
        batches = self._table.search().select(["key"]).limit(None).to_batches(65_536)
        for strays in self.manifest.reconcile(batch.column("key").to_pylist() for batch in batches):
            self._delete(strays)

    def _live(self, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Those of some rows that count: others are not committed yet, or replaced."""
        keys = self.manifest.keys([row["id"] for row in rows])
        return [row for row, key in zip(rows, keys, strict=True) if row["key"] == key]

    def _delete(self, keys: Sequence[int]) -> None:
        if keys:
            self._table.checkout_latest()
            self._table.delete(f"key IN ({', '.join(str(int(key)) for key in keys)})")

    def _readable(self) -> bool:
        """Whether every row can be read, if need be after going back to an earlier version of the table."""
        versions: list[int] = []
        with contextlib.suppress(*_DAMAGES):
            self._scan()
            return True
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


def _schema(settings: IndexSettings, columns: Columns) -> Any:
    own = {
        "id": pyarrow.string(),
        "text": pyarrow.large_string() if settings.text else None,
        "digest": pyarrow.binary(16),
        "vector": pyarrow.list_(pyarrow.float32(), settings.dimensions),
        "key": pyarrow.int64(),
    }
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
