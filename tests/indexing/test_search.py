"""Searching, and filters."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from helpers import indexes, tiny
from helpers.indexes import STORES, content, rows

import evenspan
from evenspan.encoding import Encoder


def test_search_finds_what_an_exact_search_finds(index, store, model) -> None:
    index(rows(60))
    queries = [tiny.text(6, seed=seed) for seed in range(4)]
    found = content(**store)
    names = list(found)
    documents = np.array([np.frombuffer(found[name][2], dtype=np.float32) for name in names])
    scores = model.encode_query(queries, normalize_embeddings=True) @ documents.T
    with evenspan.open_index(**store) as opened:
        results = opened.search(queries, k=5)
        assert [[one.id for one in some] for some in results] == [
            [names[at] for at in np.argsort(-row)[:5]] for row in scores
        ]
        np.testing.assert_allclose(
            [[one.score for one in some] for some in results], -np.sort(-scores)[:, :5], atol=1e-5
        )
        assert [one.rank for one in results[0]] == [1, 2, 3, 4, 5]
        assert [one.id for one in opened.search(queries[0], k=5)] == [one.id for one in results[0]]
        assert len(opened.search(queries[0], k=100)) == 60
        assert opened.search([]) == []
        with pytest.raises(ValueError, match="from 1 to 1,000,000, not 0"):
            opened.search("w1", k=0)


def test_search_shows_the_part_that_matches_best(index, store, model) -> None:
    words = tiny.text(8, seed=5)
    index([{"id": "one", "text": f"{tiny.text(128)} {words} {tiny.text(56, seed=9)}"}])
    with evenspan.open_index(model=model, **store) as opened:
        (result,) = opened.search(words, parts=True)
        assert result.part in result.text
        assert len(result.part.split()) <= 64


def test_a_search_leaves_what_other_threads_encode_alone(index, store, model, monkeypatch) -> None:
    """Queries are plain by themselves: nothing is changed for the sake of a search, and no open block is in its way."""
    index(rows(5))
    setting = evenspan.Calibration(strength=1.0, layers="all", basket_size=8)
    with evenspan.open_index(model=model, **store) as opened:
        expected = opened.search("w1 w2")
        encode, during = Encoder.encode, []

        def watched(*args, **kwargs):
            during.append(evenspan.calibration_of(model))
            return encode(*args, **kwargs)

        monkeypatch.setattr(Encoder, "encode", watched)
        with evenspan.calibrated(model, setting), ThreadPoolExecutor(1) as pool:
            assert pool.submit(opened.search, "w1 w2").result() == expected
        assert during == [setting]


@pytest.fixture(scope="module", params=STORES)
def filtered(request, model, tmp_path_factory):
    entries = rows(40)
    for number in (5, 6, 7):
        entries[number] |= {"extra": 0.5 * number, "good": number != 6}
    entries[8]["extra"] = 1.5
    for number, word in enumerate(("Zebra", "apple", "éclair", "zoo"), start=10):
        entries[number]["word"] = word
    where = {"store": f"{request.param}:{tmp_path_factory.mktemp('filters') / 'index'}"}
    if request.param == "postgres":
        where = {"store": request.getfixturevalue("server").get_uri(), "table": "filtered"}
    rejects = tmp_path_factory.mktemp("rejects") / "rejects.jsonl"
    evenspan.index(model, entries, where["store"], table=where.get("table"), progress=False, rejects=rejects)
    with evenspan.open_index(model=model, **where) as opened:
        yield entries, opened


@pytest.mark.parametrize(
    ("where", "test"),
    [
        ("year >= 2020", lambda one: one["year"] >= 2020),
        ("year > 2019 and lang = 'de'", lambda one: one["year"] > 2019 and one["lang"] == "de"),
        ("lang in ('fr', 'it') or year = 2000", lambda one: one["lang"] != "de" or one["year"] == 2000),
        ("not (lang in ('fr') or year < 2010)", lambda one: one["lang"] != "fr" and one["year"] >= 2010),
        ("lang not in ('fr', 'it')", lambda one: one["lang"] == "de"),
        ("extra is null", lambda one: "extra" not in one),
        ("extra is not null and good = true", lambda one: one.get("good") is True),
        ("extra != 1.5", lambda one: one.get("extra", 1.5) != 1.5),
        ("not extra in (1.5)", lambda one: one.get("extra", 1.5) != 1.5),
        ("word < 'b'", lambda one: one.get("word", "c") < "b"),  # by code points, whatever the language
        ("word >= 'zebra'", lambda one: one.get("word", "a") >= "zebra"),
        ("id = 'd7'", lambda one: one["id"] == "d7"),
    ],
)
def test_filters_mean_the_same_everywhere(filtered, where, test) -> None:
    entries, opened = filtered
    found = {one.id for one in opened.search("w3", k=100, where=where)}
    assert found == {one["id"] for one in entries if test(one)}
    assert found


@pytest.mark.parametrize(
    "where",
    [
        " or ".join(["year = 2001"] * 150),
        "not " * 18 + "year = 2001",
        "year > -9223372036854775808 and year = 2001",
        "(" * 15 + "year = 2001" + ")" * 15,
    ],
)
def test_long_and_deep_filters(filtered, where) -> None:
    entries, opened = filtered
    wanted = {row["id"] for row in entries if row["year"] == 2001}
    assert {hit.id for hit in opened.search_vectors(np.ones((1, 32), dtype=np.float32), 40, where)[0]} == wanted


@pytest.mark.parametrize(
    "where",
    [
        "year >= 2020; DROP TABLE filtered", "1 = 1", "year", "nothing = 1", "year = 'x'", "lang = 3", "(year = 1",
        "year = 1) or (1 = 1", "lang = 'a' -- x", "lang = 'open", "pg_sleep(5)", "year in (select 1)", "lang like 'd%'",
        "vector = 'x'", "good = 1", "year = 99999999999999999999", "(" * 60 + "year = 1" + ")" * 60, "", "year = 1 and",
        " or ".join(["year = 1"] * 300), "year = 0x10", "text = 'a'", "lang = lang", "year > 2019.5",
    ],
)  # fmt: skip
def test_a_filter_can_do_nothing_but_filter(filtered, where) -> None:
    entries, opened = filtered
    with pytest.raises(ValueError, match="Cannot read the filter"):
        opened.search("w3", where=where)
    assert len(opened) == len(entries)


def test_nothing_found_is_an_answer(index, store, model) -> None:
    index(indexes.rows(12))
    with evenspan.open_index(**store, model=model) as opened:
        assert opened.search("w3", where="year > 99999", parts=True) == []


def test_a_search_with_another_model_is_refused(model, model_folder, tmp_path) -> None:
    evenspan.index(model_folder, rows(3), tmp_path / "index", progress=False, device="cpu")
    other = evenspan.load(model_folder, device="cpu")
    with torch.no_grad():
        next(other.parameters()).add_(0.1)
    with evenspan.open_index(tmp_path / "index", other) as opened, pytest.raises(ValueError, match="is another model"):
        opened.search("w1")
    other.save_pretrained(model_folder)  # the folder now holds another model
    try:
        with evenspan.open_index(tmp_path / "index") as opened, pytest.raises(ValueError, match="is another model"):
            opened.search("w1")
    finally:
        model.save_pretrained(model_folder)


def test_an_open_index_sees_what_a_later_run_replaced(index, store, model) -> None:
    index(indexes.rows(20))
    with evenspan.open_index(**store, model=model) as opened:
        assert len(opened.search("w1", 10)) == 10
        index([{**row, "text": row["text"] + " w7"} for row in indexes.rows(20)])
        found = opened.search("w1", 10)
    assert len(found) == 10
    assert all(result.text.endswith(" w7") for result in found)


def test_rows_that_do_not_count_hide_no_others(model, tmp_path, monkeypatch) -> None:
    evenspan.index(model, indexes.rows(20), tmp_path / "index", progress=False)
    monkeypatch.setattr("evenspan.indexing.manifest.Manifest.commit", lambda *_: (_ for _ in ()).throw(OSError("died")))
    more = [{"id": f"n{number}", "text": "w1 w2 w3"} for number in range(200)]
    with pytest.raises(OSError, match="died"):
        evenspan.index(model, more, tmp_path / "index", progress=False)
    with evenspan.open_index(tmp_path / "index", model=model) as opened:
        assert len(opened.search("w1 w2 w3", 10)) == 10


def test_a_large_lance_table_gets_an_index_that_later_runs_keep_up(model, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("evenspan.indexing.stores.lance._INDEXED_FROM", 300)
    store = tmp_path / "index"
    evenspan.index(model, rows(600), store, progress=False)
    changed = [*rows(590), *({"id": f"new{number}", "text": tiny.text(6, seed=number)} for number in range(30))]
    changed[5]["text"] = tiny.text(7, seed=99)
    evenspan.index(model, changed, store, progress=False)
    found = content(str(store))
    assert len(found) == 630
    with evenspan.open_index(store, model) as opened:
        names = list(found)
        vectors = np.array([np.frombuffer(found[name][2], dtype=np.float32) for name in names])
        best = names[int((opened.encode(["w7 w8 w9"]) @ vectors.T).argmax())]
        assert opened.search("w7 w8 w9", k=3)[0].id == best
        (result,) = opened.search("w7 w8 w9", where="id = 'd5'")
        assert result.text == changed[5]["text"]


def test_vectors_that_cannot_be_indexed_are_scanned(model, tmp_path, monkeypatch) -> None:
    """A million documents of a few words can have too few different vectors."""

    def refuse(*_, **__):
        raise RuntimeError("k-means could only form 10 non-empty clusters")

    monkeypatch.setattr("evenspan.indexing.stores.lance._INDEXED_FROM", 300)
    monkeypatch.setattr("lancedb.table.LanceTable.create_index", refuse)
    with pytest.warns(UserWarning, match="cannot index"):
        assert evenspan.index(model, rows(300), tmp_path / "index", progress=False).total == 300
    with evenspan.open_index(tmp_path / "index", model=model) as opened:
        assert len(opened.search("w1", 5)) == 5


def test_a_filter_that_the_partitions_do_not_hold(model, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("evenspan.indexing.stores.lance._INDEXED_FROM", 300)
    monkeypatch.setattr("evenspan.indexing.stores.lance_search.SCANNED", 0)
    entries = [{**row, "number": number} for number, row in enumerate(rows(600))]
    evenspan.index(model, entries, tmp_path / "index", progress=False, store_options="ivf-flat,lists=16,probes=1")
    with evenspan.open_index(tmp_path / "index", model) as opened:
        for where, count in (("number in (7, 300, 599)", 3), ("number < 100", 100), (None, 600)):
            assert len(opened.search("w1 w2", 600, where)) == count


def test_a_wrong_model_in_another_precision_is_refused(index, store, model_folder) -> None:
    index(rows(3))
    for dtype in (torch.float16, torch.float64):
        other = evenspan.load(model_folder, device="cpu").to(dtype)
        with torch.no_grad():
            next(other.parameters()).add_(0.1)
        with evenspan.open_index(**store, model=other) as opened, pytest.raises(ValueError, match="is another model"):
            opened.search("w1")
    right = evenspan.load(model_folder, device="cpu").to(torch.float64)
    with evenspan.open_index(**store, model=right) as opened:
        assert opened.model is right
