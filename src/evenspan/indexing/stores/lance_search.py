"""What a search finds in a LanceDB table, of the rows that count: the nearest, or those that hold words. And its SQL."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evenspan.indexing.columns import WORDS
from evenspan.indexing.filters import Filter, IsNull, Joined, Not, OneOf, Value
from evenspan.indexing.manifest import Manifest
from evenspan.indexing.stores.base import MOST_BY_INDEX, SCANNED, Hit, hits
from evenspan.indexing.stores.lance_index import look_into, word_query
from evenspan.indexing.stores.lance_rows import rows_that_count
from evenspan.indexing.stores.options import StoreOptions

_SPARE = 16  # more results than asked for, to make up for outdated rows
_TURNS = 20  # of a search that a run disturbs


@dataclass(frozen=True)
class LanceSearch:
    """A table, what says which of its rows count, and how its index is looked into."""

    table: Any
    manifest: Manifest
    options: StoreOptions

    def nearest(self, vectors: NDArray[np.float32], k: int, where: Filter | None) -> list[list[Hit]]:
        """The best rows for each vector, by the index where it is sure to find them."""
        self.table.checkout_latest()
        few = where is not None and self.table.count_rows(condition(where)) <= SCANNED
        exact = few or k > MOST_BY_INDEX
        return [self._undisturbed(partial(self._nearest, vector, k, where, exact)) for vector in vectors]

    def matching(self, words: Sequence[str], k: int, where: Filter | None) -> list[Hit]:
        """The best rows for some words, by the full-text index."""

        def find() -> list[Hit]:
            best, _ = self._best(lambda _: word_query(self.table, " ".join(words)), k, where, "_score", all_seen=True)
            return hits(best, [row.pop("_score") for row in best])

        return self._undisturbed(find)

    def _undisturbed(self, find: Callable[[], list[Hit]]) -> list[Hit]:
        """What counts at one moment: a commit between looking into the table and into the manifest would hide rows."""
        for _ in range(_TURNS):
            version = self.manifest.version()
            self.table.checkout_latest()
            of_this_moment = find()
            if self.manifest.version() == version:
                break
        return of_this_moment

    def _nearest(self, vector: NDArray[np.float32], k: int, where: Filter | None, exact: bool) -> list[Hit]:
        def query(rows: int) -> Any:
            near = self.table.search(vector, vector_column_name="vector").distance_type("dot")
            return near.bypass_vector_index() if exact else look_into(near, self.options, rows)

        rows, complete = self._best(query, k, where, "_distance", all_seen=exact)
        if not complete:  # in the partitions of the index that were looked into
            return self._nearest(vector, k, where, exact=True)
        return hits(rows, [1.0 - row.pop("_distance") for row in rows])

    def _best(
        self, query: Callable[[int], Any], k: int, where: Filter | None, score: str, *, all_seen: bool
    ) -> tuple[list[dict[str, Any]], bool]:
        """The best `k` rows that count, and whether there are no more, if there are fewer."""
        names = [name for name in self.table.schema.names if name not in ("vector", "digest", WORDS)]
        asked = k + _SPARE
        while True:
            asking = query(asked).select([*names, score]).limit(asked)
            if where is not None:
                asking = asking.where(condition(where), prefilter=True)
            fetched = asking.to_arrow().to_pylist()
            # While a run is writing, or after it died, the table may hold rows that do not count yet or no longer do.
            rows = rows_that_count(self.manifest, fetched)[:k]
            if len(rows) == k or len(fetched) < asked:
                return rows, len(rows) == k or all_seen
            asked *= 4


def condition(where: Filter) -> str:
    """A condition in Lance's SQL, from names that are columns and values that are quoted."""
    if isinstance(where, Joined):  # side by side: Lance limits how deep brackets go
        return f"({f' {where.word} '.join(map(condition, where.parts))})"
    if isinstance(where, Not):
        return f"(NOT {condition(where.part)})"
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


def among(column: str, values: Iterable[int]) -> str:
    """Whether a column has one of some numbers."""
    return f"{column} IN ({', '.join(str(int(value)) for value in values)})"
