"""PostgreSQL's own indexes: of vectors, by the options of the store, and of words, ranked with what is rare first."""

from __future__ import annotations

import math
import struct
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

from psycopg import sql
from psycopg.adapt import Dumper
from psycopg.pq import Format

from evenspan.indexing.columns import WORDS
from evenspan.indexing.stores.options import StoreOptions

_INDEXED_DIMENSIONS = 2000  # of a `vector`; twice as many as half precision
_SEARCHED = 100  # rows that HNSW looks at, at least
_PROBED = 10  # lists that IVF looks into
_COUNTED = 10_000  # rows with a word; more are estimated by the server's statistics
_ESTIMATED = 100_000  # rows; of more the server's own number is taken, which is nearly right
_COMMON = 0.1  # share of the rows; who looks for rarer words as well does not look through all those
_MOST_WORDS = 64  # of a question, the rarest
_POSITIONS, _PLACES = 16_383, 255  # the last place that a word can have, and how many

Run = Callable[..., list[tuple[Any, ...]]]


def indexed(dimensions: int, options: StoreOptions, stored: str) -> tuple[sql.Composable, str] | None:
    """What an index is built on, and its type: the vectors, or their half-precision form where they are too long."""
    if options.index == "none" or dimensions > 2 * _INDEXED_DIMENSIONS:
        return None  # searched by an exact scan
    if stored == "float16":
        return sql.SQL("vector"), "halfvec"
    if dimensions > _INDEXED_DIMENSIONS:
        return sql.SQL(f"(vector::halfvec({int(dimensions)}))"), "halfvec"
    return sql.SQL("vector"), "vector"


def vector_type(dimensions: int, stored: str) -> str:
    """The type of the column of vectors."""
    return f"{'halfvec' if stored == 'float16' else 'vector'}({int(dimensions)})"


def index_clause(column: sql.Composable, kind: str, options: StoreOptions, rows: int) -> sql.Composed:
    """How the vector index is made, behind `CREATE INDEX … ON table`."""
    if options.index == "ivf-flat":
        method, settings = "ivfflat", {"lists": options.lists or max(1, min(rows // 1000, int(rows**0.5)))}
    else:
        given = {"m": options.m, "ef_construction": options.ef_construction}
        method, settings = "hnsw", {name: value for name, value in given.items() if value is not None}
        if options.m is not None and options.ef_construction is None:
            settings["ef_construction"] = max(64, 2 * options.m)  # pgvector wants twice as many
    written = ", ".join(f"{name} = {int(value)}" for name, value in settings.items())
    return sql.SQL("USING {} ({} {}){}").format(
        sql.SQL(method), column, sql.SQL(f"{kind}_ip_ops"), sql.SQL(f" WITH ({written})" if written else "")
    )


def search_settings(options: StoreOptions, k: int) -> list[str]:
    """What a search sets for its transaction."""
    if options.index == "ivf-flat":
        return [
            "SET LOCAL ivfflat.iterative_scan = relaxed_order",
            f"SET LOCAL ivfflat.probes = {options.probes or _PROBED}",
        ]
    looked_at = min(1000, max(options.ef_search or _SEARCHED, 2 * k))
    return ["SET LOCAL hnsw.iterative_scan = strict_order", f"SET LOCAL hnsw.ef_search = {looked_at}"]


class Words(str):
    """Words with spaces between them, which become a `tsvector`: PostgreSQL's own parser takes Chinese for one word."""


class WordsDumper(Dumper):
    """Writes words with their places as PostgreSQL sends a `tsvector`."""

    format = Format.BINARY
    oid = 3614

    def dump(self, obj: Words) -> bytes:  # noqa: D102
        places: dict[str, list[int]] = defaultdict(list)
        for place, word in enumerate(obj.split(" ") if obj else [], start=1):
            if place <= _POSITIONS and len(places[word]) < _PLACES:
                places[word].append(place)
        packed = [struct.pack("!I", len(places))]
        for word in sorted(places, key=str.encode):
            at = places[word]
            packed.append(word.encode() + struct.pack(f"!xH{len(at)}H", len(at), *at))
        return b"".join(packed)


class WordQuery:
    """The rows that hold some words, ranked by how rare the words are and how often they are there.

    PostgreSQL's own ranking counts common words like rare ones.
    """

    def __init__(self, words: Sequence[str], run: Run, table: str) -> None:
        rows, counts = _document_counts(list(dict.fromkeys(words)), run, table)
        rarest = sorted((count, word) for word, count in counts.items() if count)[:_MOST_WORDS]
        self.weights = {word: math.log(1 + (rows - count + 0.5) / (count + 0.5)) for count, word in rarest}
        rare = [word for count, word in rarest if count <= _COMMON * rows]
        self._matched = rare or list(self.weights)

    @property
    def matched(self) -> str:
        """What rows must match, as a `tsquery`."""
        return " | ".join(f"'{word}'" for word in self._matched)

    @property
    def score(self) -> sql.Composed:
        """The rank of a row, with two placeholders for each word: see `values`."""
        score = sql.SQL("%s::float8 * ts_rank({}, %s::tsquery, 1)").format(sql.Identifier(WORDS))
        return sql.SQL("({})").format(sql.SQL(" + ").join([score] * len(self.weights)))

    @property
    def values(self) -> list[Any]:
        """What goes into the placeholders of `score`."""
        return [value for word, weight in self.weights.items() for value in (weight, f"'{word}'")]


def _document_counts(words: list[str], run: Run, table: str) -> tuple[int, dict[str, int]]:
    """How many rows there are, and how many hold each word, estimated where they are many."""
    known = run("SELECT reltuples::bigint FROM pg_class WHERE oid = to_regclass(%s)", (f'"{table}"',))[0][0]
    rows = int(known) if known >= _ESTIMATED else int(run("SELECT count(*) FROM {table}")[0][0])
    common = run(
        "SELECT most_common_elems::text::text[], most_common_elem_freqs FROM pg_stats "
        "WHERE schemaname = ANY(current_schemas(false)) AND tablename = %s AND attname = %s",
        (table, WORDS),
    )
    shares = dict(zip(*common[0], strict=False)) if common and common[0][0] else {}
    counts = {word: max(1, round(shares[word] * rows)) for word in words if word in shares}
    rare = [word for word in words if word not in counts]
    counted = run(
        "SELECT word, (SELECT count(*) FROM (SELECT 1 FROM {table} WHERE {column} @@ word::tsquery LIMIT %s) AS found) "
        "FROM unnest(%s::text[]) word",
        (_COUNTED, [f"'{word}'" for word in rare]),
        column=sql.Identifier(WORDS),
    )
    return rows, counts | {word.strip("'"): int(count) for word, count in counted}
