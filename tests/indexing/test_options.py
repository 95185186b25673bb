"""Options of the stores: how vectors are kept, and how a store's own index is built."""

from __future__ import annotations

import lancedb
import numpy as np
import pytest
from helpers.indexes import content, rows

import evenspan
from evenspan.indexing.stores.options import StoreOptions

FITTING = [
    ("lance", "ivf-flat,lists=4,probes=4"),
    ("lance", "ivf-sq,lists=2,probes=2"),
    ("lance", "ivf-pq,lists=2,probes=2,vectors=float16"),
    ("lance", "hnsw,m=12,ef_construction=60,ef_search=100"),
    ("lance", "hnsw-sq,m=12"),
    ("lance", "none"),
    ("postgres", "hnsw,m=24,ef_construction=128,ef_search=200"),
    ("postgres", "hnsw,vectors=float16"),
    ("postgres", "ivf-flat,lists=4,probes=4"),
    ("postgres", "none,vectors=float16"),
    ("parquet", "auto,vectors=float16"),
]


@pytest.mark.parametrize(("kind", "options"), FITTING)
def test_an_index_with_options_finds_what_a_scan_finds(kind, options, model, tmp_path, request) -> None:
    where = {"store": f"{kind}:{tmp_path / 'index'}"}
    if kind == "postgres":
        where = {"store": request.getfixturevalue("server").get_uri(), "table": "options"}
    evenspan.index(
        model, rows(300), where["store"], table=where.get("table"), store_options=options, replace=True, progress=False
    )
    with evenspan.open_index(model=model, **where) as opened:
        found = content(**where)
        names, query = list(found), opened.encode(["w1 w2 w3 w4"])
        scores = query[0] @ np.array([np.frombuffer(found[name][2], dtype=np.float32) for name in names]).T
        best = np.argsort(-scores)[:10]
        results = opened.search_vectors(query, 10)[0]
        assert results[0].id == names[best[0]]
        assert len({hit.id for hit in results} & {names[at] for at in best}) >= 8
        np.testing.assert_allclose(results[0].score, scores[best[0]], atol=2e-3)
        assert opened.settings.vectors == ("float16" if "float16" in options else "float32")


def test_vectors_in_half_precision_are_the_same_rounded(index, store, model) -> None:
    index(rows(20))
    full = {name: np.frombuffer(row[2], dtype=np.float32) for name, row in content(**store).items()}
    index(rows(20), store_options="auto,vectors=float16", replace=True)
    half = {name: np.frombuffer(row[2], dtype=np.float32) for name, row in content(**store).items()}
    assert full.keys() == half.keys()
    for name in full:
        np.testing.assert_array_equal(half[name], full[name].astype(np.float16).astype(np.float32))
    with pytest.raises(ValueError, match="made with other settings"):
        index(rows(20), store_options="auto")
    assert index(rows(20), dry_run=True).unchanged == 20  # without options the index stays what it is
    changed = [{**row, "year": 1} for row in rows(20)]  # vectors are kept
    index(changed)
    again = {name: np.frombuffer(row[2], dtype=np.float32) for name, row in content(**store).items()}
    assert all((again[name] == half[name]).all() for name in half)
    with evenspan.open_index(model=model, **store) as opened:
        assert opened.upsert([{"id": "new", "text": "w1 w2"}]).added == 1
        assert opened.settings.vectors == "float16"


def test_another_index_is_built_without_encoding_again(model, tmp_path, server) -> None:
    where = {"store": server.get_uri(), "table": "rebuilt"}
    for options, kind, summary in (
        ("hnsw,m=8", "hnsw", (100, 0)), ("ivf-flat,lists=2", "ivfflat", (0, 100)), (None, "ivfflat", (0, 100)),
        ("none", None, (0, 100)),
    ):  # fmt: skip
        counts = evenspan.index(
            model, rows(100), where["store"], table="rebuilt", store_options=options, progress=False
        )
        assert (counts.added, counts.unchanged) == summary
        assert index_methods(server.get_uri(), "rebuilt") == ([] if kind is None else [kind])
    folder = tmp_path / "index"
    for options, kinds in (("hnsw-sq,m=8", 1), ("ivf-flat,lists=2", 1), (None, 1), ("none", 0)):
        evenspan.index(model, rows(100), folder, store_options=options, progress=False)
        table = lancedb.connect(str(folder)).open_table("documents")
        built = [entry for entry in table.list_indices() if "vector" in entry.columns]
        assert len(built) == kinds
        if options is not None and kinds:
            assert built[0].index_type == {"h": "IvfHnswSq", "i": "IvfFlat"}[options[0]]


def index_methods(address: str, table: str) -> list[str]:
    psycopg = pytest.importorskip("psycopg")
    with psycopg.connect(address) as connection:
        found = connection.execute(
            "SELECT amname FROM pg_index JOIN pg_class ON pg_class.oid = indexrelid JOIN pg_am ON pg_am.oid = relam "
            "WHERE indrelid = to_regclass(%s) AND amname <> 'btree'",
            (table,),
        )
        return [name for (name,) in found]


@pytest.mark.parametrize(
    "text", ["hnsw,m=24,ef_construction=128", "auto", "ivf-pq,vectors=float16,lists=256,probes=40"]
)
def test_options_are_read_as_they_are_written(text) -> None:
    assert str(StoreOptions.parse(text)) == text
    assert StoreOptions.parse(text) == StoreOptions.parse(str(StoreOptions.parse(text)))


@pytest.mark.parametrize(
    ("kind", "options", "words"),
    [
        ("lance", "hsnw", "index must be one of auto, ivf-flat"),
        ("lance", "hnsw,m=1", "m must be a whole number from 2 to 100, not 1"),
        ("lance", "hnsw,m=x", "m must be a whole number from 2 to 100, not 'x'"),
        ("lance", "hnsw,n=3", "Cannot read 'n=3'"),
        ("lance", "hnsw,m=8,m=9", "Cannot read 'm=9'"),
        ("lance", "", "Cannot read ''"),
        ("lance", "auto,vectors=int4", "vectors must be float32 or float16, not 'int4'"),
        ("lance", "hnsw,m=50,ef_construction=60", "ef_construction must be at least twice m, 100, not 60"),
        ("lance", "ivf-flat,m=8", "m is not an option of the index 'ivf-flat'"),
        ("parquet", "hnsw", "has no index type 'hnsw'. Available: none"),
        ("parquet", "auto,lists=3", "lists is not an option of the index 'none'"),
        ("postgresql", "ivf-pq", "PostgreSQL has no index type 'ivf-pq'. Available: hnsw, ivf-flat, none"),
        ("postgresql", "hnsw,lists=3", "lists is not an option of the index 'hnsw' of PostgreSQL"),
    ],
)
def test_options_that_cannot_be(kind, options, words, model, tmp_path) -> None:
    store = "postgresql://u:SECRET@nowhere/x" if kind == "postgresql" else f"{kind}:{tmp_path / 'index'}"
    with pytest.raises(ValueError, match=words) as refused:
        evenspan.index(model, rows(2), store, store_options=options, progress=False)
    assert "SECRET" not in str(refused.value)
