"""PostgreSQL with pgvector: one table for the documents, one for what made them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import psycopg
from numpy.typing import NDArray
from pgvector.psycopg import register_vector
from psycopg import sql
from psycopg.types.json import Jsonb

from evenspan.corpus.documents import Document
from evenspan.indexing.columns import RESERVED, Columns
from evenspan.indexing.filters import Filter
from evenspan.indexing.manifest import Written
from evenspan.indexing.settings import IndexSettings
from evenspan.indexing.stores.base import Hit, ShardWriter, Store, hits
from evenspan.indexing.stores.postgres_sql import PostgresWriter, Result, condition, connect, insist, listed, tables

_TYPES = {"bool": "boolean", "int": "bigint", "float": "double precision", "str": "text"}
_LONGEST_ID = 2000  # bytes; an entry of a B-tree takes 2,704
_INDEXED_DIMENSIONS = 2000  # of a `vector`; twice as many as half precision
_SEARCHED = 100  # rows that HNSW looks at, at least


class PostgresStore(Store):
    """A table in a database; metadata are columns of it."""

    def __init__(self, address: str, table: str, *, write: bool, replace: bool) -> None:
        if not table.isidentifier() or len(table.encode()) > 40:
            raise ValueError(f"A table needs a name of at most 40 letters, digits and underscores, not {table!r}.")
        self._address, self.table, self._write, self._reserved = address, table, write, 0
        self.location = f"PostgreSQL table {table}"
        # One thread looks documents up while another writes; only one of them may connect again.
        self._turn = threading.RLock()
        self._connection = connect(address)
        try:
            self._prepare(replace)
        except BaseException as error:
            self._connection.close()
            if isinstance(error, psycopg.Error):
                raise RuntimeError(f"PostgreSQL: {error}") from error
            raise

    def _prepare(self, replace: bool) -> None:
        if self._write:
            self._lock()
            if replace and self._exists(self.table) and not self._is_index():
                raise self._taken()
            self._run("CREATE EXTENSION IF NOT EXISTS vector")
            self._run("CREATE TABLE IF NOT EXISTS {about} (settings jsonb NOT NULL)")
            self._run("CREATE TABLE IF NOT EXISTS {shards} (number bigint PRIMARY KEY, rows bigint NOT NULL)")
            if replace:
                with self._connection.transaction():
                    self._run("DROP TABLE IF EXISTS {table}")
                    self._run("DELETE FROM {about}")
                    self._run("DELETE FROM {shards}")
        elif not self._exists(f"{self.table}_evenspan"):
            raise FileNotFoundError(f"There is no index {self.table!r} in this database.")
        register_vector(self._connection)

    def _taken(self) -> ValueError:
        return ValueError(f"There is a table {self.table!r} already and it is no index: use another --table.")

    def _exists(self, table: str) -> bool:
        return bool(self._run("SELECT to_regclass(%s) IS NOT NULL", (f'"{table}"',))[0][0])

    def _is_index(self) -> bool:
        """Whether the table was made by a run, which then wrote its settings beside it."""
        return self._exists(f"{self.table}_evenspan") and bool(self._run("SELECT count(*) > 0 FROM {about}")[0][0])

    def _lock(self) -> None:
        """Keep a second run out; the server lets go when the connection ends."""
        (got,) = self._run("SELECT pg_try_advisory_lock(hashtextextended(%s, 0))", (f"evenspan {self.table}",))[0]
        if not got:
            raise RuntimeError(f"Another run is writing to {self.location}: wait for it, or stop it.")

    def _run(self, statement: str, values: Sequence[Any] = (), **parts: sql.Composable) -> list[tuple[Any, ...]]:
        """Execute a statement with names in braces: those of the tables, and of other parts."""
        with self._connection.cursor() as cursor:
            cursor.execute(sql.SQL(statement).format(**tables(self.table), **parts), values or None)
            return cursor.fetchall() if cursor.description is not None else []

    def _ask(self, statement: str, values: Sequence[Any] = (), **parts: sql.Composable) -> list[tuple[Any, ...]]:
        return self._insist(lambda: self._run(statement, values, **parts))

    def _insist(self, action: Callable[[], Result]) -> Result:
        with self._turn:
            return insist(action, self._reconnect)

    def _reconnect(self) -> None:
        self._connection.close()
        self._connection = connect(self._address)
        register_vector(self._connection)
        if self._write:
            self._lock()

    def settings(self) -> IndexSettings | None:  # noqa: D102
        rows = self._ask("SELECT settings FROM {about}")
        return IndexSettings.from_dict(rows[0][0]) if rows else None

    def start(self, settings: IndexSettings) -> None:  # noqa: D102
        text = "text text NOT NULL, " if settings.text else ""
        columns = (
            f"id text PRIMARY KEY, {text}digest bytea NOT NULL, vector vector({int(settings.dimensions)}) NOT NULL"
        )
        with self._connection.transaction():
            try:
                self._run("CREATE TABLE {table} ({columns})", columns=sql.SQL(columns))
            except psycopg.errors.DuplicateTable:
                raise self._taken() from None
            self._run("INSERT INTO {about} VALUES (%s)", (Jsonb(settings.to_dict()),))

    def columns(self) -> Columns:  # noqa: D102
        kinds = {kind: name for name, kind in _TYPES.items()}
        rows = self._ask(
            "SELECT column_name, data_type FROM information_schema.columns "
            "WHERE table_schema = ANY(current_schemas(false)) AND table_name = %s ORDER BY ordinal_position",
            (self.table,),
        )
        return {name: kinds[kind] for name, kind in rows if name not in RESERVED and kind in kinds}

    def set_columns(self, columns: Columns) -> None:  # noqa: D102
        there = self.columns()
        for name, kind in columns.items():
            if name not in there:
                add = "ALTER TABLE {table} ADD COLUMN IF NOT EXISTS {name} {kind}"
                self._ask(add, name=sql.Identifier(name), kind=sql.SQL(_TYPES[kind]))

    def refusal(self, document: Document) -> str | None:  # noqa: D102
        values = [value for value in document.metadata.values() if isinstance(value, str)]
        if any("\0" in value for value in (document.id, document.text, *values)):
            return "holds the character NUL, which PostgreSQL cannot store"
        if len(document.id.encode()) > _LONGEST_ID:
            return f"id longer than {_LONGEST_ID:,} bytes, which PostgreSQL cannot look up"
        return None

    def digests(self, names: Sequence[str]) -> list[bytes | None]:  # noqa: D102
        rows = self._ask("SELECT id, digest FROM {table} WHERE id = ANY(%s)", (list(names),))
        digests = {name: bytes(digest) for name, digest in rows}
        return [digests.get(name) for name in names]

    def reserve(self) -> int:  # noqa: D102
        following = self._ask("SELECT coalesce(max(number), 0) + 1 FROM {shards}")[0][0]
        self._reserved = max(self._reserved + 1, int(following))
        return self._reserved

    def writer(self) -> ShardWriter:  # noqa: D102
        return PostgresWriter(self._address, self.table)

    def commit(self, written: Written, documents: Sequence[tuple[str, bytes]]) -> None:
        """Nothing is left to do: the transaction that wrote the rows has committed them."""

    def finish(self) -> None:
        """Build the HNSW index if it is not there; later rows keep it up to date."""
        dimensions = self.made_with().dimensions
        if dimensions > 2 * _INDEXED_DIMENSIONS:
            return  # searched by an exact scan
        column, kind = _indexed(dimensions)
        parts = {"name": sql.Identifier(f"{self.table}_hnsw"), "column": column, "operators": sql.SQL(f"{kind}_ip_ops")}

        def build() -> None:
            with self._connection.transaction():
                # A graph that does not fit the default of 64 MB is built many times more slowly.
                self._run("SET LOCAL maintenance_work_mem = '512MB'")
                self._run("CREATE INDEX IF NOT EXISTS {name} ON {table} USING hnsw ({column} {operators})", (), **parts)

        self._insist(build)

    def count(self) -> int:  # noqa: D102
        return int(self._ask("SELECT count(*) FROM {table}")[0][0])

    def search(self, vectors: NDArray[np.float32], k: int, where: Filter | None = None) -> list[list[Hit]]:  # noqa: D102
        settings = self.made_with()
        names = self._fields(settings)
        filtered, values = (sql.SQL("true"), []) if where is None else condition(where)
        column, kind = _indexed(settings.dimensions)
        distance = sql.SQL("{} <#> %s::{}").format(column, sql.SQL(kind))
        parts = {"names": listed(names), "distance": distance, "filtered": filtered}
        ask = "SELECT {names}, -({distance}) FROM {table} WHERE {filtered} ORDER BY {distance} LIMIT %s"

        def nearest(vector: NDArray[np.float32]) -> list[Hit]:
            with self._connection.transaction():
                # With a filter the index is asked for more until there are enough.
                self._run("SET LOCAL hnsw.iterative_scan = strict_order")
                self._run(f"SET LOCAL hnsw.ef_search = {int(min(1000, max(_SEARCHED, 2 * k)))}")
                rows = self._run(ask, (vector, *values, vector, k), **parts)
            return hits([dict(zip(names, row[:-1], strict=True)) for row in rows], [row[-1] for row in rows])

        return [self._insist(partial(nearest, vector)) for vector in vectors]

    def rows(self) -> Iterator[Hit]:  # noqa: D102
        names = [*self._fields(self.made_with()), "vector"]
        with self._connection.transaction(), self._connection.cursor("rows") as cursor:
            cursor.execute(sql.SQL("SELECT {} FROM {}").format(listed(names), sql.Identifier(self.table)))
            for row in cursor:
                values = dict(zip(names, row, strict=True))
                if hasattr(values["vector"], "to_numpy"):
                    values["vector"] = values["vector"].to_numpy()
                yield from hits([values], [0.0])

    def _fields(self, settings: IndexSettings) -> list[str]:
        """The columns that a hit shows."""
        return ["id", *(["text"] if settings.text else []), *self.columns()]

    def rejects_path(self) -> Path:  # noqa: D102
        return Path(f"{self.table}-rejects.jsonl")

    def close(self) -> None:  # noqa: D102
        self._connection.close()


def _indexed(dimensions: int) -> tuple[sql.Composable, str]:
    """What an index is built on, and its type: the vectors, or their half-precision form where they are too long."""
    if _INDEXED_DIMENSIONS < dimensions <= 2 * _INDEXED_DIMENSIONS:
        return sql.SQL(f"(vector::halfvec({int(dimensions)}))"), "halfvec"
    return sql.SQL("vector"), "vector"
