"""Hybrid search: the store's own full-text index beside its vectors."""

from __future__ import annotations

import pytest
from helpers import tiny
from helpers.indexes import rows, write_jsonl

import evenspan
from evenspan.cli import main
from evenspan.corpus.terms import terms
from evenspan.ranking import fuse

WORDED = ("lance", "postgres")
SPECIAL = {
    "d1": "The part number is XK-4711, as ever.",
    "d2": "Die Straßenbahn fährt nach Köln; der Fluß heißt Rhein.",
    "d3": "東京都は日本の首都です。人口は約1400万人。",
    "d4": "北京是中华人民共和国的首都。",
    "d5": "กรุงเทพมหานครเป็นเมืองหลวงของประเทศไทย",
    "d6": r"It's a quote ' and a back\slash: & | ! <-> (all) \"of it\".",
}


def special_rows(count: int = 60) -> list[dict[str, object]]:
    entries = rows(count)
    for entry in entries:
        entry["text"] = SPECIAL.get(str(entry["id"]), entry["text"])
    return entries


@pytest.fixture(scope="module", params=WORDED)
def worded(request, model, tmp_path_factory):
    """An index with words, once for each store that can have them."""
    where = {"store": f"{request.param}:{tmp_path_factory.mktemp('words') / 'index'}"}
    if request.param == "postgres":
        where = {"store": request.getfixturevalue("server").get_uri(), "table": "worded"}
    evenspan.index(model, special_rows(), where["store"], table=where.get("table"), full_text=True, progress=False)
    with evenspan.open_index(model=model, **where) as opened:
        yield opened


@pytest.mark.parametrize(
    ("query", "name"),
    [
        ("xk 4711", "d1"), ("XK-4711?", "d1"), ("straßenbahn", "d2"), ("KÖLN", "d2"), ("日本の首都", "d3"),
        ("人民共和国", "d4"), ("เมืองหลวง", "d5"), ("It's (all) | 'back\\slash' & <->", "d6"),
    ],
)  # fmt: skip
def test_words_are_found_in_every_script(worded, query, name) -> None:
    assert name in [one.id for one in worded.search(query, k=3, hybrid=True)]
    assert worded._search_words([query], 3, None)[0][0].id == name


def test_both_rankings_are_fused(worded) -> None:
    query = "w1 w2 w3"
    near = [hit.id for hit in worded.search_vectors(worded.encode([query]), 100)[0]]
    alike = [hit.id for hit in worded._search_words([query], 100, None)[0]]
    assert alike, "some documents hold these words"
    found = worded.search(query, k=10, hybrid=True)
    assert [(one.id, one.score) for one in found] == [
        (name, pytest.approx(score)) for name, score in fuse([near, alike])[:10]
    ]
    assert [one.rank for one in found] == list(range(1, 11))
    texts = {entry["id"]: entry["text"] for entry in special_rows()}
    assert all(set(terms(query)) & set(terms(texts[name])) for name in alike)
    assert len(alike) == sum(bool(set(terms(query)) & set(terms(text))) for text in texts.values())


def test_rare_words_count_more_than_common_ones(worded) -> None:
    (first, *_) = worded._search_words(["the part w1 w2 w3 w4 w5 w6 4711"], 60, None)[0]
    assert first.id == "d1"


def test_filters_and_several_queries(worded) -> None:
    entries = special_rows()
    wanted = {str(entry["id"]) for entry in entries if entry["year"] < 2010}
    several = worded.search(["w1 w2", "日本", "???", ""], k=60, where="year < 2010", hybrid=True)
    assert [{one.id for one in results} for results in several] == [wanted] * 4
    assert {hit.id for hit in worded._search_words(["w1 w2"], 60, "year < 2010")[0]} <= wanted
    assert worded.search([], hybrid=True) == []
    assert worded.search("日本の首都", where="year > 9999", hybrid=True) == []


@pytest.mark.parametrize("kind", WORDED)
def test_words_follow_their_documents(kind, model, tmp_path, request) -> None:
    where = {"store": f"{kind}:{tmp_path / 'index'}"}
    if kind == "postgres":
        where = {"store": request.getfixturevalue("server").get_uri(), "table": "followed"}
    options = {
        "full_text": True,
        "chunk_tokens": 24,
        "calibration": "none",
        "progress": False,
        "table": where.get("table"),
    }
    tail = " ".join(f"{tiny.text(9, seed=seed)}!" for seed in range(4))
    entries = [{**entry, "text": f"{tail} {entry['text']}"} for entry in special_rows(30)]
    evenspan.index(model, entries, where["store"], **options)
    entries[1]["text"] = f"{tail} Now it is YZ-0815."
    entries[3]["year"] = 1  # its words are written again with it
    entries.append({"id": "new", "text": f"{tail} Another one is YZ-0816!"})
    evenspan.index(model, entries, where["store"], **options)
    with evenspan.open_index(model=model, **where) as opened:
        assert opened._search_words(["4711"], 5, None) == [[]]
        for query, name, part in (
            ("0815", "d1", "YZ-0815"),
            ("0816", "new", "YZ-0816"),
            ("日本の首都", "d3", "日本の首都"),
        ):
            ((first,),) = opened._search_words([query], 1, None)
            assert first.id == name
            assert part in first.text
            assert first.chunk > 0
            (text,) = [entry["text"] for entry in entries if entry["id"] == name]
            assert text[slice(*first.span)] == first.text
        assert opened.delete(ids=["new"]) == 1
        assert opened._search_words(["0816"], 5, None) == [[]]


def test_refusals(index, store, model, tmp_path, capsys) -> None:
    if store["store"].startswith("parquet"):
        with pytest.raises(ValueError, match="is a Parquet index, which has no full-text search"):
            index(rows(3), full_text=True)
    else:
        with pytest.raises(ValueError, match="needs an index that stores texts"):
            index(rows(3), full_text=True, keep_text=False)
    for options, parquet_or in (
        ({}, "has no full-text index"),
        ({"keep_text": False, "replace": True}, "stores no texts"),
    ):
        index(rows(3), **options)
        words = "hybrid search needs LanceDB or PostgreSQL" if store["store"].startswith("parquet") else parquet_or
        with evenspan.open_index(model=model, **store) as opened, pytest.raises(ValueError, match=words):
            opened.search("w1", hybrid=True)
    table = ["--table", store["table"]] if "table" in store else []
    assert main(["search", store["store"], "w1", "--hybrid", *table]) == 2
    assert words in capsys.readouterr().err


def test_the_command_line(model_folder, tmp_path, capsys, monkeypatch) -> None:
    corpus = write_jsonl(tmp_path / "corpus.jsonl", special_rows(20))
    store = str(tmp_path / "index")
    more = ["--full-text", "--chunk-tokens", "32", "--overlap", "8", "--calibration", "none", "--device", "cpu"]
    assert main(["index", model_folder, str(corpus), store, *more]) == 0
    assert "  chunks     " in capsys.readouterr().out
    assert main(["search", store, "XK-4711", "--hybrid", "-k", "1", "--device", "cpu"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("  1. ")
    assert len(lines) == 2
