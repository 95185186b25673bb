"""PostgreSQL with pgvector: one table for the documents, one for what made them."""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Iterator, Sequence
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
from evenspan.indexing.stores.base import Hit, ShardWriter, Store
from evenspan.indexing.stores.options import StoreOptions
from evenspan.indexing.stores.postgres_index import index_clause, indexed, vector_type
from evenspan.indexing.stores.postgres_search import PostgresSearch, as_array
from evenspan.indexing.stores.postgres_session import PostgresSession
from evenspan.indexing.stores.postgres_sql import PostgresWriter, column, condition, tables, told

_TYPES = {"bool": "boolean", "int": "bigint", "float": "double precision", "str": "text"}
_LONGEST_ID = 2000  # bytes; an entry of a B-tree takes 2,704
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
        self._base, self._reserved, self._started = table, 0, False
        self.location = f"PostgreSQL table {table}"
        self._session = PostgresSession(address, table, _beside(table) if replace else table, write=write)
        try:
            self._prepare(write=write)
        except BaseException as error:
            self._session.connection.close()
            if isinstance(error, psycopg.Error):
                raise told(error) from error
            raise

    @property
    def table(self) -> str:
        """The table of the index, or of what is to replace it."""
        return self._session.table

    def _prepare(self, *, write: bool) -> None:
        if write:
            self._session.lock()
            for name in {self._base, self.table}:
                if self._session.exists(name) and not self._is_index(name):
                    raise self._taken()
            # Only what is missing is made: who may not make anything can still write to what is there.
            if not self._session.run("SELECT 1 FROM pg_extension WHERE extname = 'vector'"):
                self._session.run("CREATE EXTENSION IF NOT EXISTS vector")
            self._session.take(self._base, _beside(self._base))
        elif not self._session.exists(f"{self.table}_evenspan"):
            raise FileNotFoundError(f"No index {self.table!r} found in this database. Build one with `evenspan index`.")
        register_vector(self._session.connection)
        self.generation = self._generation()

    def _taken(self) -> ValueError:
        return ValueError(f"There is a table {self._base!r} that is not an index: use another --table.")

    def _is_index(self, table: str) -> bool:
        """Whether a table was made by a run, which then wrote its settings beside it."""
        return self._session.exists(f"{table}_evenspan") and bool(
            self._session.run("SELECT 1 FROM {about}", (), **tables(table))
        )

    def settings(self) -> IndexSettings | None:  # noqa: D102
        stored = self._about()
        if stored is None:
            return None
        return IndexSettings.from_dict({name: value for name, value in stored.items() if not name.startswith("_")})

    def _about(self) -> dict[str, Any] | None:
        if not self._session.insist(lambda: self._session.exists(f"{self.table}_evenspan")):
            return None
        rows = self._session.ask("SELECT settings FROM {about}")
        if rows and rows[0][0].get("_format", 1) > FORMAT:
            raise ValueError(f"{self.location} was made by a newer evenspan: upgrade evenspan.")
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
            with self._session.connection.transaction():
                if self.table != self._base:
                    self._drop()
                for part, made_of in (
                    ("about", "settings jsonb NOT NULL"),
                    ("shards", "number bigint PRIMARY KEY, rows bigint NOT NULL"),
                ):
                    self._session.run(f"CREATE TABLE IF NOT EXISTS {{{part}}} ({made_of})")
                self._session.run("CREATE TABLE {table} ({columns})", columns=made_of_columns)
                self._session.run("INSERT INTO {about} VALUES (%s)", (Jsonb(stored),))
                self._session.take(self._base, _beside(self._base))

        self._session.insist(begin)
        self.generation, self._started = generation, True

    def _drop(self) -> None:
        for part in _PARTS:
            self._session.run(f"DROP TABLE IF EXISTS {{{part}}}")

    def discard(self) -> None:  # noqa: D102
        with contextlib.suppress(OSError, RuntimeError, psycopg.Error):  # the error that ended the run is to be seen
            if self._started and not self.count():
                self._session.commit(self._drop)

    def change_vector_index(self, settings: IndexSettings) -> None:  # noqa: D102
        def change() -> None:
            self._session.run(
                "UPDATE {about} SET settings = (settings - 'vector_index') || %s", (Jsonb(settings.to_dict()),)
            )
            for (name,) in self._session.run(_INDEXES, (f'"{self.table}"', _VECTORS)):
                self._session.run("DROP INDEX {name}", name=sql.SQL(name))

        self._session.commit(change)

    def columns(self) -> Columns:  # noqa: D102
        kinds = {kind: name for name, kind in _TYPES.items()}
        rows = self._session.ask(
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
                self._session.ask(add, name=column(name), kind=sql.SQL(_TYPES[kind]))

    def refusal(self, document: Document) -> str | None:  # noqa: D102
        values = [value for value in document.metadata.values() if isinstance(value, str)]
        if any("\0" in value for value in (document.id, document.text, *values)):
            return "holds the character NUL, which PostgreSQL cannot store"
        if len(document.id.encode()) > _LONGEST_ID:
            return f"id longer than {_LONGEST_ID:,} bytes, which PostgreSQL cannot look up"
        return None

    def digests(self, names: Sequence[str]) -> list[bytes | None]:  # noqa: D102
        rows = self._session.ask("SELECT id, digest FROM {table} WHERE id = ANY(%s)", (list(names),))
        digests = {name: bytes(digest) for name, digest in rows}
        return [digests.get(name) for name in names]

    def vectors(self, names: Sequence[str]) -> NDArray[np.float32]:  # noqa: D102
        order = sql.SQL(CHUNK if self._chunked else "id")
        by_name: dict[str, list[NDArray[np.float32]]] = defaultdict(list)
        ask = "SELECT id, vector FROM {table} WHERE id = ANY(%s) ORDER BY {order}"
        for name, vector in self._session.ask(ask, (list(names),), order=order):
            by_name[name].append(as_array(vector))
        return np.stack([vector for name in names for vector in by_name[name]])

    def reserve(self) -> int:  # noqa: D102
        following = self._session.ask("SELECT coalesce(max(number), 0) + 1 FROM {shards} WHERE number > 0")[0][0]
        self._reserved = max(self._reserved + 1, int(following))
        return self._reserved

    def writer(self) -> ShardWriter:  # noqa: D102
        return PostgresWriter(self._session.address, self.table, self._session.token)

    def commit(self, written: Written, documents: Sequence[tuple[str, bytes]]) -> None:
        """Nothing is left to do: the transaction that wrote the rows has committed them."""

    def delete(self, names: Sequence[str]) -> int:  # noqa: D102
        delete = "DELETE FROM {table} WHERE id = ANY(%s) RETURNING id"
        possible = [name for name in names if "\0" not in name]  # no others are there, and PostgreSQL refuses to look
        return len(set(self._session.commit(lambda: self._session.run(delete, (possible,)))))

    def delete_where(self, where: Filter) -> int:  # noqa: D102
        filtered, values = condition(where)
        delete = "DELETE FROM {table} WHERE {filtered} RETURNING id"
        return len(set(self._session.commit(lambda: self._session.run(delete, values, filtered=filtered))))

    def prune(self, seen: SeenIds) -> int:  # noqa: D102
        def gone() -> list[str]:
            names: list[str] = []
            with self._session.connection.transaction(), self._session.connection.cursor("ids") as cursor:
                cursor.execute(sql.SQL("SELECT id FROM {table}").format(**tables(self.table)))
                while some := {id_digest(name): name for (name,) in cursor.fetchmany(10_000)}:
                    names += (some[digest] for digest in seen.missing(iter(some)))
            return names

        return self.delete(self._session.insist(gone))

    def finish(self) -> None:  # noqa: D102
        self._build_index()
        if self.table != self._base:
            self._session.commit(self._take_the_place)
            self._session.table = self._base

    def _take_the_place(self) -> None:
        """Become the index, in the transaction that drops what was there."""
        if self._session.exists(f"{self._base}_evenspan_shards"):
            self._session.check(self._base)
        for part, name in tables(self._base).items():
            self._session.run("DROP TABLE IF EXISTS {name}", name=name)
            self._session.run(f"ALTER TABLE {{{part}}} RENAME TO {{name}}", name=name)

    def _build_index(self) -> None:
        """Build the indexes that are not there; later rows keep them up to date."""
        settings = self.made_with()
        options = StoreOptions.parse(settings.vector_index)
        of_index = indexed(settings.dimensions, options, settings.vectors)

        def build() -> None:
            with self._session.connection.transaction():
                if of_index is not None and not self._session.run(_INDEXES, (f'"{self.table}"', _VECTORS)):
                    # A graph that does not fit the default of 64 MB is built many times more slowly.
                    self._session.run("SET LOCAL maintenance_work_mem = '512MB'")
                    rows = self._session.run("SELECT count(*) FROM {table}")[0][0]
                    self._session.run("CREATE INDEX ON {table} {made}", made=index_clause(*of_index, options, rows))
                if settings.full_text:
                    if not self._session.run(_INDEXES, (f'"{self.table}"', _WORDS)):
                        self._session.run("CREATE INDEX ON {table} USING gin ({words})", words=sql.Identifier(WORDS))
                    self._session.run("ANALYZE {table}")  # how common words are

        self._session.insist(build)

    def verify(self, *, repair: bool) -> list[str]:  # noqa: ARG002
        """Have the server read everything; what is damaged there, its own tools mend."""
        text = sql.SQL("sum(octet_length(text))" if self.made_with().text else "0")
        try:
            self._session.ask("SELECT sum(vector_dims(vector)), {text} FROM {table}", (), text=text)
        except RuntimeError as error:
            return [f"{self.location}: {error}"]
        return []

    def count(self) -> int:  # noqa: D102
        first = sql.SQL(f"WHERE {CHUNK} = 0" if self._chunked else "")
        return int(self._session.ask("SELECT count(*) FROM {table} {first}", first=first)[0][0])

    @property
    def _chunked(self) -> bool:
        return self.made_with().chunk_tokens is not None

    def _search(self) -> PostgresSearch:
        return PostgresSearch(self._session, self.made_with(), self.columns())

    def nearest(self, vectors: NDArray[np.float32], k: int, where: Filter | None) -> list[list[Hit]]:  # noqa: D102
        return self._search().nearest(vectors, k, where)

    def matching(self, words: Sequence[str], k: int, where: Filter | None) -> list[Hit]:  # noqa: D102
        return self._search().matching(words, k, where)

    def rows(self) -> Iterator[Hit]:  # noqa: D102
        return self._search().rows()

    def rejects_path(self) -> Path:  # noqa: D102
        return Path(f"{self._base}-rejects.jsonl")

    def close(self) -> None:  # noqa: D102
        self._session.close()


def _beside(table: str) -> str:
    """What is built to replace an index: a name that nobody else's has."""
    return f"{table}~next"
