"""Indexing and searching, through the public API, in every store."""

from __future__ import annotations

import io
import itertools
import json
import sys

import indexes
import numpy as np
import pyarrow
import pytest
import tiny
import torch
from indexes import STORES, content, rows, write_jsonl
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Pooling

import evenspan
import evenspan.indexing.planning
from evenspan.cli import main
from evenspan.indexing.batches import DocumentEncoder
from evenspan.indexing.planning import ShardSize

SMALL = ShardSize(documents=16)
_tables = itertools.count()


@pytest.fixture(scope="module")
def model_folder(tmp_path_factory) -> str:
    return indexes.saved_model(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def model(model_folder):
    return evenspan.load(model_folder, device="cpu")


@pytest.fixture(scope="module")
def server():
    with indexes.postgres_server() as started:
        yield started


@pytest.fixture(params=STORES)
def store(request, tmp_path) -> dict[str, str]:
    """Where an index goes: the arguments of `index` and `open_index` that say so."""
    if request.param != "postgres":
        return {"store": f"{request.param}:{tmp_path / 'index'}"}
    return {"store": request.getfixturevalue("server").get_uri(), "table": f"t{next(_tables)}"}


@pytest.fixture
def index(model_folder, store, tmp_path, monkeypatch):
    """`evenspan.index` into the store, without a progress bar."""
    monkeypatch.chdir(tmp_path)

    def run(source, *args, **options):
        return evenspan.index(
            options.pop("model", model_folder), source, store["store"], *args,
            **{"shard": SMALL, "progress": False, "table": store.get("table"), **options},
        )  # fmt: skip

    return run


def test_every_document_is_there_with_its_calibrated_vector(index, store, model) -> None:
    entries = [*rows(40), {"id": "long", "text": tiny.text(200), "year": 1999}]
    summary = index(entries)
    assert (summary.total, summary.added, summary.documents, summary.skipped) == (41, 41, 41, 0)
    found = content(**store)
    assert {name: (text, metadata) for name, (text, metadata, _) in found.items()} == {
        one["id"]: (one["text"], {k: v for k, v in one.items() if k not in ("id", "text")}) for one in entries
    }
    with evenspan.calibrated(model):
        expected = model.encode_document([one["text"] for one in entries], normalize_embeddings=True)
    got = np.array([np.frombuffer(found[one["id"]][2], dtype=np.float32) for one in entries])
    np.testing.assert_allclose(got, expected, atol=2e-6)
    assert evenspan.calibration_of(model) is None


def test_the_settings_are_stored_with_the_index(index, store, model_folder) -> None:
    index(rows(5), "hard,strength=1.0")
    with evenspan.open_index(**store) as opened:
        assert opened.settings.calibration == "hard,strength=1.0,layers=half,basket_size=128,self_mass=0.3"
        assert opened.settings.model == model_folder
        assert opened.settings.query_prompt == "w1 w2 "
        assert opened.columns == {"year": "int", "lang": "str"}
        assert len(opened) == 5


def test_a_second_run_adds_and_replaces(index, store) -> None:
    index(rows(40))
    before = content(**store)
    changed = rows(50)
    changed[3]["text"] = tiny.text(9, seed=77)
    changed[20]["year"] = 1
    del changed[21]["lang"]
    summary = index(changed)
    assert (summary.added, summary.replaced, summary.unchanged, summary.total) == (10, 3, 37, 50)
    after = content(**store)
    assert after["d3"][0] == changed[3]["text"]
    assert after["d3"][2] != before["d3"][2]
    assert after["d20"][1]["year"] == 1
    assert "lang" not in after["d21"][1]
    assert all(after[name] == before[name] for name in before if name not in ("d3", "d20", "d21"))
    assert index(changed).unchanged == 50


def test_outdated_rows_are_not_left_in_parquet_files(model, tmp_path) -> None:
    for seed in (0, 1):
        entries = [{**one, "text": tiny.text(5, seed=seed)} for one in rows(40)[:20]] + rows(40)[20:]
        evenspan.index(model, entries, f"parquet:{tmp_path / 'index'}", shard=SMALL, progress=False)
    table = pyarrow.parquet.read_table(tmp_path / "index")
    assert sorted(table["id"].to_pylist()) == sorted(one["id"] for one in rows(40))


def test_another_model_or_calibration_is_refused_side_by_side(index, store, model_folder) -> None:
    index(rows(5))
    with pytest.raises(ValueError, match="made with other settings") as refused:
        index(rows(5), "soft,strength=1.0")
    assert "soft,strength=0.5,layers=half,basket_size=128  soft,strength=1.0,layers=half,basket_size=128" in str(
        refused.value
    )
    with pytest.raises(ValueError, match="document_prompt"):
        index(rows(5), document_prompt="w9 ")
    other = evenspan.load(model_folder, device="cpu")
    with torch.no_grad():
        next(other.parameters()).add_(0.1)
    with pytest.raises(ValueError, match="weights"):
        index(rows(5), model=other)
    assert len(content(**store)) == 5
    assert index(rows(3), "none", replace=True).total == 3
    with evenspan.open_index(**store) as opened:
        assert opened.settings.calibration == "none"


AWKWARD = [
    "'; DROP TABLE documents; --", '"quotes" and `ticks`', "emoji 😀 and \u202e marks", "%s %(id)s {} \\' \\\\",
    "line\nbreak\ttab\r\n", " leading and trailing ", "NULL", "日本語", "a" * 1500, "../../etc/passwd", "${HOME}",
]  # fmt: skip


def test_ids_and_texts_can_contain_anything(index, store, model) -> None:
    entries = [{"id": text, "text": text, "note": text} for text in AWKWARD]
    entries.append({"id": "megabyte", "text": "w1 " * 350_000, "note": "long"})
    index(entries)
    found = content(**store)
    assert {name: (text, metadata["note"]) for name, (text, metadata, _) in found.items()} == {
        one["id"]: (one["text"], one["note"]) for one in entries
    }
    assert index(entries).unchanged == len(entries)
    with evenspan.open_index(model=model, **store) as opened:
        for text in AWKWARD:
            quoted = text.replace("'", "''")
            (result,) = opened.search("w1", where=f"note = '{quoted}'")
            assert (result.id, result.text) == (text, text)
            assert opened.search("w1", where=f"note = '{quoted}x'") == []


def test_nul_is_kept_or_rejected_with_its_line(index, store, tmp_path) -> None:
    source = write_jsonl(tmp_path / "corpus.jsonl", [*rows(20), {"id": "nul", "text": "w1 \0 w2"}])
    summary = index(source)
    if "table" in store:
        assert summary.skipped == 1
        (reject,) = indexes.rejects(summary)
        assert (reject["line"], reject["id"]) == (21, "nul")
        assert "NUL" in reject["reason"]
    else:
        assert content(**store)["nul"][0] == "w1 \0 w2"


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
        with pytest.raises(ValueError, match="at least 1, not 0"):
            opened.search("w1", k=0)


def test_search_shows_the_part_that_matches_best(index, store, model) -> None:
    words = tiny.text(8, seed=5)
    index([{"id": "one", "text": f"{tiny.text(128)} {words} {tiny.text(56, seed=9)}"}])
    with evenspan.open_index(model=model, **store) as opened:
        (result,) = opened.search(words, parts=True)
        assert result.part in result.text
        assert len(result.part.split()) <= 64


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


def test_metadata_can_be_chosen_and_typed(index, store, tmp_path) -> None:
    path = tmp_path / "corpus.csv"
    path.write_text("name,body,year,note,select\n1,w1 w2,2020,x,a b\n2,w3,,y,\n3,w4,soon,z,c\n", encoding="utf-8")
    summary = index(path, field="body", id_field="name", metadata=["year:int", "select"], max_rejects=0.5)
    found = {name: metadata for name, (_, metadata, _) in content(**store).items()}
    assert found == {"1": {"year": 2020, "select": "a b"}, "2": {}}
    (reject,) = indexes.rejects(summary)
    assert (reject["line"], reject["id"]) == (4, "3")


def test_awkward_column_names(index, store) -> None:
    entry = {
        "id": "1",
        "text": "w1",
        'a"b; DROP': 1,
        "vector": "v",
        "a.b": 2,
        "key": "k",
        "Größe": 1.5,
        "_x": [1, {"y": 2}],
    }
    index([entry])
    assert content(**store)["1"][1] == {
        "a_b__DROP": 1, "metadata_vector": "v", "a_b": 2, "metadata_key": "k", "Größe": 1.5, "metadata__x": '[1, {"y": 2}]',
    }  # fmt: skip


def test_a_field_that_comes_late_gets_a_column(index, store, model, monkeypatch) -> None:
    monkeypatch.setattr(evenspan.indexing.planning, "_ROWS", 20)  # the first rows settle the columns
    entries = rows(60)
    entries[50]["seen"] = "late"
    index(entries)
    assert [name for name, (_, metadata, _) in content(**store).items() if "seen" in metadata] == ["d50"]
    with evenspan.open_index(model=model, **store) as opened:
        assert [hit.id for hit in opened.search("w1", where="seen = 'late'")] == ["d50"]
        assert len(opened.search("w1", k=100, where="seen is null")) == 59


def test_texts_can_be_left_out(index, store, model) -> None:
    index(rows(5), keep_text=False)
    assert {text for text, _, _ in content(**store).values()} == {None}
    with evenspan.open_index(model=model, **store) as opened:
        assert opened.search("w1", parts=True)[0].part is None


def test_two_runs_at_once_are_refused(index, store) -> None:
    def meddling():
        yield from rows(3)
        with pytest.raises(RuntimeError, match="Another run is writing"):
            index(rows(3))

    assert index(meddling()).total == 3


def test_a_folder_with_other_files_is_left_alone(model, tmp_path) -> None:
    (tmp_path / "mine.txt").write_text("precious")
    for kind in ("lance", "parquet"):
        with pytest.raises(ValueError, match=r"holds other files \(mine.txt\)"):
            evenspan.index(model, rows(3), f"{kind}:{tmp_path}", replace=True, progress=False)
    assert (tmp_path / "mine.txt").read_text() == "precious"


def test_out_of_memory_halves_the_batch(model, tmp_path, monkeypatch) -> None:
    sizes = []
    plain = type(model).encode_document

    def scarce(self, texts, **options):
        sizes.append(len(texts))
        if len(texts) > 3:
            raise torch.OutOfMemoryError("no room")
        return plain(self, texts, **options)

    evenspan.index(model, rows(12), f"parquet:{tmp_path / 'plain'}", "none", progress=False)
    monkeypatch.setattr(type(model), "encode_document", scarce)
    evenspan.index(model, rows(12), f"parquet:{tmp_path / 'scarce'}", "none", progress=False)
    assert max(sizes) > 3
    one, other = content(f"parquet:{tmp_path / 'plain'}"), content(f"parquet:{tmp_path / 'scarce'}")
    for name in one:
        np.testing.assert_allclose(np.frombuffer(one[name][2], "f4"), np.frombuffer(other[name][2], "f4"), atol=2e-6)


def test_batches_keep_to_their_budget_longest_first(model) -> None:
    from evenspan.indexing.batches import DocumentEncoder

    encoder = DocumentEncoder(model, batch_tokens=64)
    texts = [one["text"] for one in rows(50)]
    counts = encoder.count_tokens(texts)
    assert counts == [len(text.split()) + 2 for text in texts]
    batches = list(encoder._batches(counts))
    assert sorted(at for batch in batches for at in batch) == list(range(50))
    assert all(len(batch) * max(counts[at] for at in batch) <= 64 for batch in batches)
    longest = [max(counts[at] for at in batch) for batch in batches]
    assert longest == sorted(longest, reverse=True)


def test_tokens_and_truncation_are_counted(index) -> None:
    summary = index([{"id": "short", "text": "w1 w2"}, {"id": "long", "text": tiny.text(400)}])
    assert (summary.tokens, summary.truncated) == (4 + 256, 1)
    assert "260 (1 documents truncated)" in str(summary)
    assert json.loads(summary.to_json())["tokens"] == 260


def test_the_command_line_indexes_and_searches(model_folder, tmp_path, capsys, monkeypatch) -> None:
    text = "".join(json.dumps({"key": one["id"], "body": one["text"], "year": one["year"]}) + "\n" for one in rows(30))
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO((text + "oops\n").encode())))
    store = str(tmp_path / "index")
    command = ["index", model_folder, "-", store, "--field", "body", "--id", "key", "--batch-tokens", "500", "--json"]
    assert main([*command, "--calibration", "soft,strength=1.0"]) == 0
    printed = capsys.readouterr()
    summary = json.loads(printed.out)
    assert (summary["total"], summary["rejected"]) == (30, {"no valid JSON": 1})
    assert "documents/s" in printed.err
    assert "tokens/s" in printed.err
    assert main(["search", store, "w1 w2", "-k", "2", "--where", "year < 2010"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("  1. ")
    assert len(lines) == 4
    assert main(["search", store, "w1", "--where", "1=1"]) == 2
    assert "evenspan: Cannot read the filter" in capsys.readouterr().err
    assert main(["index", model_folder, str(tmp_path / "nothing"), store]) == 2
    assert "There is no file or folder" in capsys.readouterr().err
    assert main(["search", str(tmp_path / "nowhere"), "w1"]) == 2
    assert "There is no index" in capsys.readouterr().err


def test_a_model_with_a_calibration_of_its_own_uses_it(model_folder, tmp_path) -> None:
    model = evenspan.calibrate(evenspan.load(model_folder, device="cpu"), evenspan.Calibration("uniform"))
    evenspan.index(model, rows(3), tmp_path / "index", progress=False)
    with evenspan.open_index(tmp_path / "index", model) as opened:
        assert opened.settings.calibration.startswith("uniform")
        np.testing.assert_array_equal(
            opened.encode(["w5 w6"]), evenspan.restore(model).encode_query(["w5 w6"], normalize_embeddings=True)
        )


def test_wrong_arguments_say_what_is_right(model, tmp_path) -> None:
    for options, words in (
        ({"engine": "spark"}, "engine must be one of local, ray"),
        ({"address": "auto"}, "are for engine='ray'"),
        ({"batch_tokens": 0}, "batch_tokens must be at least 1, not 0"),
        ({"max_rejects": 2}, "must lie in"),
        ({"source_format": "xml"}, "there are jsonl, csv, tsv, parquet, text"),
        ({"field": "id"}, "cannot both be read"),
        ({"engine": "ray"}, "pass its folder or its name"),
        ({"table": "x"}, "is for PostgreSQL"),
    ):
        with pytest.raises(ValueError, match=words):
            evenspan.index(model, rows(2), tmp_path / "index", progress=False, **options)
    with pytest.raises(ValueError, match="There is no store for"):
        evenspan.index(model, rows(2), "redis://x", progress=False)


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


def test_nothing_found_is_an_answer(index, store, model) -> None:
    index(indexes.rows(12))
    with evenspan.open_index(**store, model=model) as opened:
        assert opened.search("w3", where="year > 99999", parts=True) == []


def test_the_same_weights_pooled_otherwise_are_another_model(model, tmp_path) -> None:
    evenspan.index(model, indexes.rows(5), tmp_path / "index", progress=False)
    other = SentenceTransformer(modules=[model[0], Pooling(32, "lasttoken"), *list(model)[2:]], prompts=model.prompts)
    with pytest.raises(ValueError, match="made with other settings"):
        evenspan.index(other, indexes.rows(5), tmp_path / "index", "none", progress=False)


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
    monkeypatch.setattr(
        "evenspan.indexing.catalogue.Catalogue.commit", lambda *_: (_ for _ in ()).throw(OSError("died"))
    )
    more = [{"id": f"n{number}", "text": "w1 w2 w3"} for number in range(200)]
    with pytest.raises(OSError, match="died"):
        evenspan.index(model, more, tmp_path / "index", progress=False)
    with evenspan.open_index(tmp_path / "index", model=model) as opened:
        assert len(opened.search("w1 w2 w3", 10)) == 10


def test_a_table_of_somebody_else_is_not_replaced(model, server) -> None:
    psycopg = pytest.importorskip("psycopg")
    with psycopg.connect(server.get_uri(), autocommit=True) as connection:
        connection.execute("CREATE TABLE users (name text)")
    for replace in (False, True):
        with pytest.raises(ValueError, match="it is no index"):
            evenspan.index(model, indexes.rows(3), server.get_uri(), table="users", replace=replace, progress=False)


@pytest.mark.parametrize("address", ["mysql://u:SECRET@host/db", "postgresql://u:SEC%RET@localhost/db"])
def test_passwords_are_not_shown(address, model) -> None:
    with pytest.raises(ValueError, match=r"store for mysql|no address") as raised:
        evenspan.index(model, indexes.rows(3), address, progress=False)
    assert "SEC" not in str(raised.value)


def test_a_damaged_manifest_can_be_replaced(model, tmp_path) -> None:
    evenspan.index(model, indexes.rows(5), tmp_path / "index", progress=False)
    (tmp_path / "index" / "_manifest.sqlite").write_bytes(b"damaged" * 1000)
    with pytest.raises(RuntimeError, match="--replace"):
        evenspan.index(model, indexes.rows(5), tmp_path / "index", progress=False)
    assert evenspan.index(model, indexes.rows(5), tmp_path / "index", replace=True, progress=False).total == 5


def test_one_given_type_leaves_the_others_to_be_found(model, tmp_path) -> None:
    rows = [{**row, "score": 1 if number == 0 else number / 2} for number, row in enumerate(indexes.rows(10))]
    summary = evenspan.index(model, rows, tmp_path / "index", metadata=["year:int", "score"], progress=False)
    assert summary.added == 10


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


def test_neither_the_source_nor_an_index_in_it_is_harmed(model, tmp_path) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    source = indexes.write_jsonl(folder / "rows.jsonl", indexes.rows(6))
    with pytest.raises(ValueError, match="a file of the source"):
        evenspan.index(model, source, tmp_path / "index", rejects=source, progress=False)
    assert source.exists()
    for expected in (6, 0):
        summary = evenspan.index(model, folder, f"parquet:{folder / 'index'}", progress=False)
        assert (summary.added, summary.rejected) == (expected, {})


def test_another_query_prompt_is_not_ignored(model, tmp_path) -> None:
    evenspan.index(model, indexes.rows(3), tmp_path / "index", query_prompt="w5 ", progress=False)
    with pytest.raises(ValueError, match=r"'w5 ', not 'w7 '"):
        evenspan.index(model, indexes.rows(3), tmp_path / "index", query_prompt="w7 ", progress=False)
    assert evenspan.index(model, indexes.rows(3), tmp_path / "index", progress=False).unchanged == 3


def test_halving_is_remembered_once_for_both_halves(model, monkeypatch) -> None:
    encoder = DocumentEncoder(model, batch_tokens=64)
    encode = type(model).encode_document

    def small(self, texts, **options):
        if len(texts) > 2:
            raise torch.OutOfMemoryError("too large")
        return encode(self, texts, **options)

    monkeypatch.setattr(type(model), "encode_document", small)
    assert encoder.encode(["w1"] * 16, [3] * 16).shape == (16, 32)
    assert encoder.batch_tokens == 8


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
