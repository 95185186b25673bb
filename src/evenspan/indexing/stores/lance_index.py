"""LanceDB's own indexes: of vectors, by the options of the store, and of words."""

from __future__ import annotations

import warnings
from typing import Any

from evenspan.indexing.columns import WORDS
from evenspan.indexing.stores.options import StoreOptions

_PROBES = 40  # partitions of the index that a search looks into
_CLASSES = {
    "ivf-flat": "IvfFlat",
    "ivf-sq": "IvfSq",
    "ivf-pq": "IvfPq",
    "hnsw": "HnswFlat",
    "hnsw-sq": "HnswSq",
    "hnsw-pq": "HnswPq",
}
_REFINED = {"sq": 3, "pq": 10}  # times as many results of a quantised index are compared by their vectors


def index_vectors(table: Any, rows: int, options: StoreOptions) -> None:
    """Build the index that the options ask for."""
    import lancedb.index

    wanted = "ivf-flat" if options.index == "auto" else options.index
    if wanted == "none":
        return
    graph = wanted.startswith("hnsw")
    settings: dict[str, Any] = {"num_partitions": options.lists or (None if graph else max(16, int(rows**0.5)))}
    settings |= {"m": options.m, "ef_construction": options.ef_construction}
    chosen = {name: value for name, value in settings.items() if value is not None}
    try:
        config = getattr(lancedb.index, _CLASSES[wanted])(distance_type="dot", **chosen)
        table.create_index("vector", config=config, replace=True)
    except RuntimeError as error:  # too few vectors, or too many that are alike, to be told into that many parts
        reason = (str(error).splitlines() or [""])[0]
        warnings.warn(f"LanceDB cannot index these vectors ({reason}): they are scanned, slower.", stacklevel=2)


def look_into(query: Any, options: StoreOptions, rows: int) -> Any:
    """How much of the index a search for so many rows looks at."""
    kind, _, quantised = options.index.partition("-")
    refined = _REFINED.get(quantised, 1)
    query = query.nprobes(options.probes or _PROBES)
    if refined > 1:
        query = query.refine_factor(refined)
    return query.ef(max(options.ef_search or 0, 2 * refined * rows)) if kind == "hnsw" else query


def index_words(table: Any) -> None:
    """Build the full-text index. The words are cut already: every tokenizer of LanceDB's own takes Chinese for one word."""
    from lancedb.index import FTS

    plain = FTS(
        base_tokenizer="whitespace",
        max_token_length=None,
        lower_case=False,
        stem=False,
        remove_stop_words=False,
        ascii_folding=False,
    )
    table.create_index(WORDS, config=plain, replace=True)


def word_query(table: Any, words: str) -> Any:
    """The rows that hold some of these words, by BM25."""
    from lancedb import query

    matching: Any = query.MatchQuery
    return table.search(matching(words, WORDS), query_type="fts")
