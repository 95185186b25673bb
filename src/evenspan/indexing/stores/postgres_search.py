"""What is read from the table of an index in PostgreSQL: the nearest rows, those that hold words, or all of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from psycopg import sql

from evenspan.indexing.columns import CHUNK, END, START, WORDS, Columns
from evenspan.indexing.filters import Filter
from evenspan.indexing.settings import IndexSettings
from evenspan.indexing.stores.base import MOST_BY_INDEX, SCANNED, Hit, hits
from evenspan.indexing.stores.options import StoreOptions
from evenspan.indexing.stores.postgres_index import WordQuery, indexed, search_settings
from evenspan.indexing.stores.postgres_session import PostgresSession
from evenspan.indexing.stores.postgres_sql import condition, listed


@dataclass(frozen=True)
class PostgresSearch:
    """An index at one moment: its table, what made it, and its metadata columns."""

    session: PostgresSession
    settings: IndexSettings
    columns: Columns

    def nearest(self, vectors: NDArray[np.float32], k: int, where: Filter | None) -> list[list[Hit]]:
        """The best rows for each vector, by the index where it is sure to find them."""
        filtered, values = (sql.SQL("true"), []) if where is None else condition(where)
        exact = k > MOST_BY_INDEX
        if where is not None and not exact:
            few = "SELECT count(*) FROM (SELECT 1 FROM {table} WHERE {filtered} LIMIT %s) AS passing"
            exact = self.session.ask(few, (*values, SCANNED + 1), filtered=filtered)[0][0] <= SCANNED
        ask = partial(self._nearest, k, filtered, values)
        of_each = []
        for vector in vectors:
            rows = self.session.insist(partial(ask, vector, exact=exact))
            if len(rows) < k and not exact:  # the index gives up after so many rows
                rows = self.session.insist(partial(ask, vector, exact=True))
            of_each.append(rows)
        return of_each

    def _nearest(
        self, k: int, filtered: sql.Composable, values: list[Any], vector: NDArray[np.float32], *, exact: bool
    ) -> list[Hit]:
        options = StoreOptions.parse(self.settings.vector_index)
        scanned = sql.SQL("vector"), "halfvec" if self.settings.vectors == "float16" else "vector"
        of_index = None if exact else indexed(self.settings.dimensions, options, self.settings.vectors)
        column, kind = of_index or scanned
        names, distance = self._fields(), sql.SQL("{} <#> %s::{}").format(column, sql.SQL(kind))
        parts = {"names": listed(names), "distance": distance, "filtered": filtered}
        # An index is used for the order by a distance, and not by a sum.
        parts["order"] = sql.SQL("({}) + 0" if of_index is None else "{}").format(distance)
        ask = "SELECT {names}, -({distance}) FROM {table} WHERE {filtered} ORDER BY {order} LIMIT %s"
        with self.session.connection.transaction():
            for setting in search_settings(options, k):
                self.session.run(setting)
            rows = self.session.run(ask, (vector, *values, vector, k), **parts)
        entries = [(dict(zip(names, row[:-1], strict=True)), row[-1]) for row in rows]
        entries.sort(key=lambda entry: -entry[1])  # IVF gives them in a nearly right order
        return hits([row for row, _ in entries], [score for _, score in entries])

    def matching(self, words: Sequence[str], k: int, where: Filter | None) -> list[Hit]:
        """The best rows for some words, by the full-text index."""
        query = WordQuery(words, self.session.ask, self.session.table)
        if not query.weights:
            return []
        names = self._fields()
        filtered, values = (sql.SQL("true"), []) if where is None else condition(where)
        parts = {"names": listed(names), "score": query.score, "filtered": filtered, "words": sql.Identifier(WORDS)}
        ask = (
            "SELECT {names}, {score} AS score FROM {table} WHERE {words} @@ %s::tsquery AND {filtered} "
            "ORDER BY score DESC, id LIMIT %s"
        )
        rows = self.session.ask(ask, (*query.values, query.matched, *values, k), **parts)
        return hits([dict(zip(names, row[:-1], strict=True)) for row in rows], [row[-1] for row in rows])

    def rows(self) -> Iterator[Hit]:
        """Every row, with its vector."""
        names, connection = [*self._fields(), "vector"], self.session.connection
        with connection.transaction(), connection.cursor("rows") as cursor:
            table = sql.Identifier(self.session.table)
            cursor.execute(sql.SQL("SELECT {} FROM {}").format(listed(names), table), ())
            for row in cursor:
                values = dict(zip(names, row, strict=True))
                yield from hits([{**values, "vector": as_array(values["vector"])}], [0.0])

    def _fields(self) -> list[str]:
        """The columns that a hit shows."""
        chunk = [] if self.settings.chunk_tokens is None else [CHUNK, START, END]
        return ["id", *(["text"] if self.settings.text else []), *chunk, *self.columns]


def as_array(vector: Any) -> NDArray[np.float32]:
    """A vector as pgvector gives it, of whatever precision."""
    return np.asarray(vector.to_numpy() if hasattr(vector, "to_numpy") else vector, dtype=np.float32)
