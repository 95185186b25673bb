"""Documents that leave an index, documents that change a little, and whether everything is whole."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from helpers import indexes
from helpers.indexes import content, rows

import evenspan
from evenspan.cli import main
from evenspan.encoding import Encoder
from evenspan.indexing import delete_documents, verify_index


def test_documents_are_deleted(index, store, model) -> None:
    index(rows(60))
    before = content(**store)
    with evenspan.open_index(**store, model=model) as opened:
        assert opened.delete(["d1", "d2", "nobody"]) == 2
        years = [int(one["year"]) for one in rows(60)]
        late = {f"d{number}" for number in range(60) if years[number] >= 2025} - {"d1", "d2"}
        assert opened.delete(where="year >= 2025") == len(late)
        left = set(before) - {"d1", "d2"} - late
        assert {hit.id for hit in opened.search("w1", 60)} == left
        assert len(opened) == len(left)
        assert content(**store) == {name: before[name] for name in left}
        for wrong in ({}, {"ids": ["d3"], "where": "year = 1"}):
            with pytest.raises(ValueError, match="Give either ids or a filter"):
                opened.delete(**wrong)
        with pytest.raises(TypeError, match=r"such as \['d3'\]"):
            opened.delete("d3")
    assert index(rows(60)).added == len(late) + 2


def test_nothing_is_deleted_from_where_there_is_nothing(store) -> None:
    with pytest.raises(FileNotFoundError, match=r"No index .* Build one with"):
        delete_documents(store["store"], ["d1"], table=store.get("table"))


def test_documents_are_upserted(index, store, model) -> None:
    index(rows(20), "soft,strength=1.0", document_prompt="w5 ")
    with evenspan.open_index(**store, model=model) as opened:
        summary = opened.upsert([{"id": "d3", "text": "w9 w8 w7"}, {"id": "new", "text": "w1 w2", "year": 1}])
        assert (summary.added, summary.replaced, summary.total) == (1, 1, 21)
        assert {hit.id: hit.text for hit in opened.search("w9", 21)}["d3"] == "w9 w8 w7"
        found = content(**store)
    index([*rows(20)[:3], {"id": "d3", "text": "w9 w8 w7"}], "soft,strength=1.0", document_prompt="w5 ")
    assert content(**store) == found


def test_documents_that_are_gone_are_pruned(index, store, tmp_path) -> None:
    index(rows(60))
    kept = index(rows(40))
    assert (kept.total, kept.pruned) == (60, 0)
    summary = index([*rows(40), {"id": "new", "text": "w1"}], prune=True)
    assert (summary.total, summary.pruned, summary.added, summary.unchanged) == (41, 20, 1, 40)
    assert set(content(**store)) == {"new", *(f"d{number}" for number in range(40))}


def broken(count: int):
    yield from rows(count)
    raise OSError("gone")


def test_nothing_is_pruned_unless_all_was_read(index, store, tmp_path) -> None:
    index(rows(60))
    with pytest.raises(OSError, match="gone"):
        index(broken(30), prune=True)
    assert len(content(**store)) == 60
    source = indexes.write_jsonl(tmp_path / "corpus.jsonl", rows(30))
    source.write_text(source.read_text() + "{oops\n")
    with pytest.warns(UserWarning, match="No documents were removed: 1 row could not be read"):
        assert index(source, prune=True).pruned == 0
    assert len(content(**store)) == 60


def test_a_document_that_becomes_invalid_leaves_the_index(index, store) -> None:
    index(rows(20))
    entries = rows(20)
    entries[3]["text"] = ""
    entries[4]["year"] = "no number"
    del entries[5]["text"]
    entries += [{"id": "d6", "text": "the second of this name"}, {"id": "d7", "text": None}]
    summary = index(entries, max_rejects=0.5)
    assert (summary.invalid, summary.total, summary.skipped) == (3, 17, 5)
    assert set(content(**store)) == {f"d{number}" for number in range(20)} - {"d3", "d4", "d5"}
    assert "invalid    3" in str(summary)
    reasons = {one["line"]: one["reason"] for one in indexes.rejects(summary)}
    assert reasons[4] == "empty text"
    assert index(rows(20)).added == 3


def test_the_only_document_of_a_source_leaves_if_it_is_invalid(index, store, model) -> None:
    index(rows(3))
    with evenspan.open_index(**store, model=model) as opened:
        assert opened.upsert([{"id": "d1", "text": " "}], max_rejects=1.0).invalid == 1
        with pytest.raises(ValueError, match="There are no documents"):
            opened.upsert([{"id": "d1", "text": " "}], max_rejects=1.0)
    assert set(content(**store)) == {"d0", "d2"}


def test_new_metadata_do_not_encode(index, store, monkeypatch) -> None:
    index(rows(40))
    before = content(**store)
    changed = [{**row, "year": 1, "source": "new"} if number < 30 else row for number, row in enumerate(rows(40))]
    with monkeypatch.context() as patch:
        patch.setattr(Encoder, "windows", never_with_texts(Encoder.windows))
        summary = index(changed)
    assert (summary.updated, summary.replaced, summary.unchanged, summary.tokens) == (30, 0, 10, 0)
    after = content(**store)
    assert {name: vector for name, (_, _, vector) in after.items()} == {
        name: vector for name, (_, _, vector) in before.items()
    }
    assert after["d3"][1] == {"year": 1, "lang": "de", "source": "new"}
    assert index(changed).unchanged == 40


def never_with_texts(windows):
    def watched(encoder, texts, *arguments):
        def none():
            for some in texts:
                raise AssertionError(f"{len(some)} texts are encoded")
            yield

        return windows(encoder, (some for some in none() if some), *arguments)

    return watched


def test_an_index_is_verified(index, store, tmp_path, capsys) -> None:
    index(rows(60))
    before = content(**store)
    found = verify_index(**store)
    assert (found.total, found.problems) == (60, ())
    assert "60 documents, no damage" in str(found)
    if "table" in store:
        return
    if store["store"].startswith("lance"):
        files = (tmp_path / "index" / "documents.lance" / "data").iterdir()
        file = max(files, key=lambda each: each.stat().st_mtime)
        file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
    else:
        file = sorted((tmp_path / "index").glob("shard-*.parquet"))[1]
        damage(file)
        assert index(rows(60)).unchanged == 60, "a run does not read everything"
    assert main(["verify", store["store"]]) == 1
    assert "damaged" in capsys.readouterr().out
    assert main(["verify", store["store"], "--repair", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["repaired"]
    assert main(["verify", store["store"]]) == 0
    assert index(rows(60)).total == 60
    assert content(**store) == before


def damage(file: Path) -> None:
    """Change a byte, and nothing of the size."""
    held = bytearray(file.read_bytes())
    held[len(held) // 2] ^= 1
    file.write_bytes(held)


def test_a_shard_that_was_cut_off_is_encoded_again(model, tmp_path) -> None:
    place = f"parquet:{tmp_path / 'index'}"
    evenspan.index(model, rows(20), place, progress=False)
    (file,) = (tmp_path / "index").glob("shard-*.parquet")
    os.truncate(file, file.stat().st_size // 2)
    assert evenspan.index(model, rows(20), place, progress=False).added == 20


def test_a_lance_table_is_compacted_while_a_run_goes_on(model, tmp_path, monkeypatch) -> None:
    import lancedb

    monkeypatch.setattr("evenspan.indexing.stores.lance._COMPACTED", 3)
    counts = []
    optimize = lancedb.table.LanceTable.optimize

    def counting(table, **options):
        optimize(table, **options)
        counts.append(int(table.list_versions()[-1]["metadata"]["total_fragments"]))

    monkeypatch.setattr(lancedb.table.LanceTable, "optimize", counting)
    size = evenspan.indexing.plan.ShardSize(5)
    evenspan.index(model, rows(60), tmp_path / "index", shard=size, progress=False)
    assert counts == [1] * 5, "four times while it went on, and at the end"
    assert len(content(str(tmp_path / "index"))) == 60


def test_a_home_folder_may_be_written_as_a_tilde(model, tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    evenspan.index(model, rows(3), "parquet:~/index", progress=False)
    assert (tmp_path / "index" / "_manifest.sqlite").exists()
    assert len(content(f"parquet:{tmp_path / 'index'}")) == 3
