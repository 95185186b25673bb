"""Shards into PostgreSQL, from any process."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from pgvector.psycopg import register_vector
from psycopg import sql

from evenspan.indexing.columns import vectors_of
from evenspan.indexing.manifest import Written
from evenspan.indexing.stores.base import ShardWriter
from evenspan.indexing.stores.postgres_sql import connect, insist, listed, shards


@dataclass(frozen=True)
class PostgresWriter(ShardWriter):
    """Writes the rows of a shard in one transaction, which is also its commit."""

    address: str = field(repr=False)  # it may hold a password
    table: str

    def write(self, number: int, rows: Any) -> Written:  # noqa: D102
        names = [name for name in rows.schema.names if name != "vector"]
        columns = [rows[name].to_pylist() for name in names]
        records = list(zip(*columns, vectors_of(rows), strict=True))
        table, names = sql.Identifier(self.table), [*names, "vector"]
        insert = sql.SQL("INSERT INTO {} ({}) VALUES ({}) ON CONFLICT (id) DO UPDATE SET {}").format(
            table,
            listed(names),
            sql.SQL(", ").join([sql.Placeholder()] * len(names)),
            sql.SQL(", ").join(sql.SQL("{0} = EXCLUDED.{0}").format(sql.Identifier(name)) for name in names[1:]),
        )
        # What is replaced goes as a whole: a column that the new row lacks must not keep its old value.
        delete = sql.SQL("DELETE FROM {} WHERE id = ANY(%s)").format(table)
        commit = sql.SQL("INSERT INTO {} (number, rows) VALUES (%s, %s) ON CONFLICT (number) DO NOTHING")

        def save() -> None:
            with connect(self.address) as connection:
                register_vector(connection)
                with connection.transaction(), connection.cursor() as cursor:
                    cursor.execute(delete, (columns[0],))
                    cursor.executemany(insert, records)
                    cursor.execute(commit.format(shards(self.table)), (number, rows.num_rows))

        insist(save, lambda: None)
        return Written(number, None, rows.num_rows, 0, "")
