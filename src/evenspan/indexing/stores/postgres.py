"""PostgreSQL with pgvector: one table for the documents, one for what made them."""

from __future__ import annotations

import contextlib
import secrets
import threading
from collections import defaultdict
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
from evenspan.indexing.columns import CHUNK, END, RESERVED, START, WORDS, Columns
from evenspan.indexing.filters import Filter
from evenspan.indexing.ids import SeenIds, id_digest
from evenspan.indexing.manifest import FORMAT, Written, new_generation
from evenspan.indexing.settings import IndexSettings
from evenspan.indexing.stores.base import Hit, ShardWriter, Store, hits
from evenspan.indexing.stores.options import StoreOptions
from evenspan.indexing.stores.postgres_index import WordQuery, index_clause, indexed, search_settings, vector_type
from evenspan.indexing.stores.postgres_sql import (
    RUN,
    PostgresWriter,
    Result,
    check_run,
    column,
    condition,
    connect,
    insist,
    listed,
    tables,
    told,
)

_TYPES = {"bool": "boolean", "int": "bigint", "float": "double precision", "str": "text"}
_LONGEST_ID = 2000  # bytes; an entry of a B-tree takes 2,704
_SCANNED = 250_000  # rows that pass a filter; so many are all compared, which misses none
_MOST_BY_INDEX = 1000  # results; for more all rows are compared
_PARTS = ("table", "about", "shards")
_VECTORS, _WORDS = ["hnsw", "ivfflat"], ["gin"]
_INDEXES = """
SELECT indexrelid::regclass::text FROM pg_index
JOIN pg_class ON pg_class.oid = indexrelid JOIN pg_am ON pg_am.oid = relam
WHERE indrelid = to_regclass(%s) AND amname = ANY(%s) AND indisvalid
"""


class PostgresStore(Store):
    """A table in a database; metadata are columns of it. What is to replace it has a name of its own until it is whole."""

    searches_words = True

    def __init__(self, address: str, table: str, *, write: bool, replace: bool) -> None:
        if not table.isidentifier() or len(table.encode()) > 40:
            raise ValueError(f"A table needs a name of at most 40 letters, digits and underscores, not {table!r}.")
        self._address, self._write, self._reserved = address, write, 0
        self._base, self.table = table, _beside(table) if replace else table
        self._token, self._started = secrets.randbits(62), False
        self.location = f"PostgreSQL table {table}"
        # One thread looks documents up while another writes; only one of them may connect again.
        self._turn = threading.RLock()
        self._connection = connect(address)
        try:
            self._prepare()
        except BaseException as error:
            self._connection.close()
            if isinstance(error, psycopg.Error):
                raise told(error) from error
            raise

    def _prepare(self) -> None:
        if self._write:
            self._lock()
            for name in {self._base, self.table}:
                if self._exists(name) and not self._is_index(name):
                    raise self._taken()
            # Only what is missing is made: who may not make anything can still write to what is there.
            if not self._run("SELECT 1 FROM pg_extension WHERE extname = 'vector'"):
                self._run("CREATE EXTENSION IF NOT EXISTS vector")
            self._take()
        elif not self._exists(f"{self.table}_evenspan"):
            raise FileNotFoundError(f"There is no index {self.table!r} in this database.")
        register_vector(self._connection)
        self.generation = self._generation()

    def _taken(self) -> ValueError:
        return ValueError(f"There is a table {self._base!r} already and it is no index: use another --table.")

    def _exists(self, table: str) -> bool:
        return bool(self._run("SELECT to_regclass(%s) IS NOT NULL", (f'"{table}"',))[0][0])

    def _is_index(self, table: str) -> bool:
        """Whether a table was made by a run, which then wrote its settings beside it."""
        return self._exists(f"{table}_evenspan") and bool(self._run("SELECT 1 FROM {about}", (), **tables(table)))

    def _lock(self) -> None:
        """Keep a second run out; the server lets go when the connection ends."""
        (got,) = self._run("SELECT pg_try_advisory_lock(hashtextextended(%s, 0))", (f"evenspan {self._base}",))[0]
        if not got:
            raise RuntimeError(f"Another run is writing to {self.location}: wait for it, or stop it.")

    def _take(self) -> None:
        """Begin a run: whoever wrote before, and has lost its lock, commits nothing more."""
        for name in (self._base, _beside(self._base)):
            if self._exists(f"{name}_evenspan_shards"):
                take = "INSERT INTO {shards} VALUES (%s, %s) ON CONFLICT (number) DO UPDATE SET rows = EXCLUDED.rows"
                self._run(take, (RUN, self._token), **tables(name))

    def _run(self, statement: str, values: Sequence[Any] = (), **parts: sql.Composable) -> list[tuple[Any, ...]]:
        """Execute a statement with names in braces: those of the tables, and of other parts."""
        with self._connection.cursor() as cursor:
            cursor.execute(sql.SQL(statement).format(**(tables(self.table) | parts)), values)
            return cursor.fetchall() if cursor.description is not None else []

    def _ask(self, statement: str, values: Sequence[Any] = (), **parts: sql.Composable) -> list[tuple[Any, ...]]:
        return self._insist(lambda: self._run(statement, values, **parts))

    def _insist(self, action: Callable[[], Result]) -> Result:
        with self._turn:
            return insist(action, self._reconnect)

    def _commit(self, action: Callable[[], Result]) -> Result:
        """Do something in one transaction, if no other run has followed."""

        def checked() -> Result:
            with self._connection.transaction():
                check_run(self._connection, self.table, self._token)
                return action()

        return self._insist(checked)

    def _reconnect(self) -> None:
        self._connection.close()
        self._connection = connect(self._address)
        register_vector(self._connection)
        if self._write:
            self._lock()
            if self._exists(f"{self.table}_evenspan_shards"):
                check_run(self._connection, self.table, self._token)

    def settings(self) -> IndexSettings | None:  # noqa: D102
        stored = self._about()
        if stored is None:
            return None
        return IndexSettings.from_dict({name: value for name, value in stored.items() if not name.startswith("_")})

    def _about(self) -> dict[str, Any] | None:
        if not self._insist(lambda: self._exists(f"{self.table}_evenspan")):
            return None
        rows = self._ask("SELECT settings FROM {about}")
        if rows and rows[0][0].get("_format", 1) > FORMAT:
            raise ValueError(f"{self.location} was made by a newer evenspan: install that.")
        return dict(rows[0][0]) if rows else None

    def _generation(self) -> str:
        return str((self._about() or {}).get("_generation", ""))

    def replaced(self) -> bool:  # noqa: D102
        return self._generation() != self.generation

    def start(self, settings: IndexSettings) -> None:  # noqa: D102
        kind = vector_type(settings.dimensions, settings.vectors)
        columns = ["id text NOT NULL", "digest bytea NOT NULL", f"vector {kind} NOT NULL"]
        columns += ["text text NOT NULL"] if settings.text else []
        columns += [f"{WORDS} tsvector NOT NULL"] if settings.full_text else []
        key = "id"
        if settings.chunk_tokens is not None:
            columns += [f"{CHUNK} int NOT NULL", f"{START} bigint NOT NULL", f"{END} bigint NOT NULL"]
            key = f"id, {CHUNK}"
        made_of_columns = sql.SQL(", ".join([*columns, f"PRIMARY KEY ({key})"]))
        generation = new_generation()
        stored = {**settings.to_dict(), "_generation": generation, "_format": FORMAT}

        def begin() -> None:
            with self._connection.transaction():
                if self.table != self._base:
                    self._drop()
                for part, made_of in (
                    ("about", "settings jsonb NOT NULL"),
                    ("shards", "number bigint PRIMARY KEY, rows bigint NOT NULL"),
                ):
                    self._run(f"CREATE TABLE IF NOT EXISTS {{{part}}} ({made_of})")
                self._run("CREATE TABLE {table} ({columns})", columns=made_of_columns)
                self._run("INSERT INTO {about} VALUES (%s)", (Jsonb(stored),))
                self._take()

        self._insist(begin)
        self.generation, self._started = generation, True

    def _drop(self) -> None:
        for part in _PARTS:
            self._run(f"DROP TABLE IF EXISTS {{{part}}}")

    def discard(self) -> None:  # noqa: D102
        with contextlib.suppress(OSError, RuntimeError, psycopg.Error):  # the error that ended the run is to be seen
            if self._started and not self.count():
                self._commit(self._drop)

    def change_vector_index(self, settings: IndexSettings) -> None:  # noqa: D102
        def change() -> None:
            self._run("UPDATE {about} SET settings = (settings - 'vector_index') || %s", (Jsonb(settings.to_dict()),))
            for (name,) in self._run(_INDEXES, (f'"{self.table}"', _VECTORS)):
                self._run("DROP INDEX {name}", name=sql.SQL(name))

        self._commit(change)

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
                self._ask(add, name=column(name), kind=sql.SQL(_TYPES[kind]))

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

    def vectors(self, names: Sequence[str]) -> NDArray[np.float32]:  # noqa: D102
        order = sql.SQL(CHUNK if self._chunked else "id")
        by_name: dict[str, list[NDArray[np.float32]]] = defaultdict(list)
        ask = "SELECT id, vector FROM {table} WHERE id = ANY(%s) ORDER BY {order}"
        for name, vector in self._ask(ask, (list(names),), order=order):
            by_name[name].append(_array(vector))
        return np.stack([vector for name in names for vector in by_name[name]])

    def reserve(self) -> int:  # noqa: D102
        following = self._ask("SELECT coalesce(max(number), 0) + 1 FROM {shards} WHERE number > 0")[0][0]
        self._reserved = max(self._reserved + 1, int(following))
        return self._reserved

    def writer(self) -> ShardWriter:  # noqa: D102
        return PostgresWriter(self._address, self.table, self._token)

    def commit(self, written: Written, documents: Sequence[tuple[str, bytes]]) -> None:
        """Nothing is left to do: the transaction that wrote the rows has committed them."""

    def delete(self, names: Sequence[str]) -> int:  # noqa: D102
        delete = "DELETE FROM {table} WHERE id = ANY(%s) RETURNING id"
        return len(set(self._commit(lambda: self._run(delete, (list(names),)))))

    def delete_where(self, where: Filter) -> int:  # noqa: D102
        filtered, values = condition(where)
        delete = "DELETE FROM {table} WHERE {filtered} RETURNING id"
        return len(set(self._commit(lambda: self._run(delete, values, filtered=filtered))))

    def prune(self, seen: SeenIds) -> int:  # noqa: D102
        def gone() -> list[str]:
            names: list[str] = []
            with self._connection.transaction(), self._connection.cursor("ids") as cursor:
                cursor.execute(sql.SQL("SELECT id FROM {table}").format(**tables(self.table)))
                while some := {id_digest(name): name for (name,) in cursor.fetchmany(10_000)}:
                    names += (some[digest] for digest in seen.missing(iter(some)))
            return names

        return self.delete(self._insist(gone))

    def finish(self) -> None:  # noqa: D102
        self._build_index()
        if self.table != self._base:
            self._commit(self._take_the_place)
            self.table = self._base

    def _take_the_place(self) -> None:
        """Become the index, in the transaction that drops what was there."""
        if self._exists(f"{self._base}_evenspan_shards"):
            check_run(self._connection, self._base, self._token)
        for part, name in tables(self._base).items():
            self._run("DROP TABLE IF EXISTS {name}", name=name)
            self._run(f"ALTER TABLE {{{part}}} RENAME TO {{name}}", name=name)

    def _build_index(self) -> None:
        """Build the indexes that are not there; later rows keep them up to date."""
        settings = self.made_with()
        options = StoreOptions.parse(settings.vector_index)
        of_index = indexed(settings.dimensions, options, settings.vectors)

        def build() -> None:
            with self._connection.transaction():
                if of_index is not None and not self._run(_INDEXES, (f'"{self.table}"', _VECTORS)):
                    # A graph that does not fit the default of 64 MB is built many times more slowly.
                    self._run("SET LOCAL maintenance_work_mem = '512MB'")
                    rows = self._run("SELECT count(*) FROM {table}")[0][0]
                    self._run("CREATE INDEX ON {table} {made}", made=index_clause(*of_index, options, rows))
                if settings.full_text:
                    if not self._run(_INDEXES, (f'"{self.table}"', _WORDS)):
                        self._run("CREATE INDEX ON {table} USING gin ({words})", words=sql.Identifier(WORDS))
                    self._run("ANALYZE {table}")  # how common words are

        self._insist(build)

    def verify(self, *, repair: bool) -> list[str]:  # noqa: ARG002
        """Have the server read everything; what is damaged there, its own tools mend."""
        text = sql.SQL("sum(octet_length(text))" if self.made_with().text else "0")
        try:
            self._ask("SELECT sum(vector_dims(vector)), {text} FROM {table}", (), text=text)
        except RuntimeError as error:
            return [f"{self.location}: {error}"]
        return []

    def count(self) -> int:  # noqa: D102
        first = sql.SQL(f"WHERE {CHUNK} = 0" if self._chunked else "")
        return int(self._ask("SELECT count(*) FROM {table} {first}", first=first)[0][0])

    @property
    def _chunked(self) -> bool:
        return self.made_with().chunk_tokens is not None

    def nearest(self, vectors: NDArray[np.float32], k: int, where: Filter | None) -> list[list[Hit]]:  # noqa: D102
        settings = self.made_with()
        filtered, values = (sql.SQL("true"), []) if where is None else condition(where)
        exact = k > _MOST_BY_INDEX
        if where is not None and not exact:
            few = "SELECT count(*) FROM (SELECT 1 FROM {table} WHERE {filtered} LIMIT %s) AS passing"
            exact = self._ask(few, (*values, _SCANNED + 1), filtered=filtered)[0][0] <= _SCANNED
        ask = partial(self._nearest, settings, k, filtered, values)
        hits_of_each = []
        for vector in vectors:
            rows = self._insist(partial(ask, vector, exact=exact))
            if len(rows) < k and not exact:  # the index gives up after so many rows
                rows = self._insist(partial(ask, vector, exact=True))
            hits_of_each.append(rows)
        return hits_of_each

    def _nearest(
        self,
        settings: IndexSettings,
        k: int,
        filtered: sql.Composable,
        values: list[Any],
        vector: NDArray[np.float32],
        *,
        exact: bool,
    ) -> list[Hit]:
        options = StoreOptions.parse(settings.vector_index)
        scanned = sql.SQL("vector"), "halfvec" if settings.vectors == "float16" else "vector"
        of_index = None if exact else indexed(settings.dimensions, options, settings.vectors)
        column, kind = of_index or scanned
        names, distance = self._fields(settings), sql.SQL("{} <#> %s::{}").format(column, sql.SQL(kind))
        parts = {"names": listed(names), "distance": distance, "filtered": filtered}
        # An index is used for the order by a distance, and not by a sum.
        parts["order"] = sql.SQL("({}) + 0" if of_index is None else "{}").format(distance)
        ask = "SELECT {names}, -({distance}) FROM {table} WHERE {filtered} ORDER BY {order} LIMIT %s"
        with self._connection.transaction():
            for setting in search_settings(options, k):
                self._run(setting)
            rows = self._run(ask, (vector, *values, vector, k), **parts)
        entries = [(dict(zip(names, row[:-1], strict=True)), row[-1]) for row in rows]
        entries.sort(key=lambda entry: -entry[1])  # IVF gives them in a nearly right order
        return hits([row for row, _ in entries], [score for _, score in entries])

    def matching(self, words: Sequence[str], k: int, where: Filter | None) -> list[Hit]:  # noqa: D102
        query = WordQuery(words, self._ask, self.table)
        if not query.weights:
            return []
        names = self._fields(self.made_with())
        filtered, values = (sql.SQL("true"), []) if where is None else condition(where)
        parts = {"names": listed(names), "score": query.score, "filtered": filtered, "words": sql.Identifier(WORDS)}
        ask = (
            "SELECT {names}, {score} AS score FROM {table} WHERE {words} @@ %s::tsquery AND {filtered} "
            "ORDER BY score DESC, id LIMIT %s"
        )
        rows = self._ask(ask, (*query.values, query.matched, *values, k), **parts)
        return hits([dict(zip(names, row[:-1], strict=True)) for row in rows], [row[-1] for row in rows])

    def rows(self) -> Iterator[Hit]:  # noqa: D102
        names = [*self._fields(self.made_with()), "vector"]
        with self._connection.transaction(), self._connection.cursor("rows") as cursor:
            cursor.execute(sql.SQL("SELECT {} FROM {}").format(listed(names), sql.Identifier(self.table)), ())
            for row in cursor:
                values = dict(zip(names, row, strict=True))
                yield from hits([{**values, "vector": _array(values["vector"])}], [0.0])

    def _fields(self, settings: IndexSettings) -> list[str]:
        """The columns that a hit shows."""
        chunk = [] if settings.chunk_tokens is None else [CHUNK, START, END]
        return ["id", *(["text"] if settings.text else []), *chunk, *self.columns()]

    def rejects_path(self) -> Path:  # noqa: D102
        return Path(f"{self._base}-rejects.jsonl")

    def close(self) -> None:  # noqa: D102
        if self._write:
            with contextlib.suppress(psycopg.Error):  # the server would notice the end of the connection a little later
                self._run("SELECT pg_advisory_unlock_all()")
        self._connection.close()


def _beside(table: str) -> str:
    """What is built to replace an index: a name that nobody else's has."""
    return f"{table}~next"


def _array(vector: Any) -> NDArray[np.float32]:
    return np.asarray(vector.to_numpy() if hasattr(vector, "to_numpy") else vector, dtype=np.float32)
