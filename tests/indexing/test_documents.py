"""What a store holds of documents, and how they are batched."""

from __future__ import annotations

import json
import re
from functools import partialmethod

import numpy as np
from helpers import calls, indexes, tiny
from helpers.indexes import content, rows, write_jsonl

import evenspan
import evenspan.indexing.reading
from evenspan.indexing.plan import ShardSize
from evenspan.models.batches import BatchRunner
from evenspan.models.features import TextFeatures

AWKWARD = [
    "'; DROP TABLE documents; --", '"quotes" and `ticks`', "emoji 😀 and \u202e marks", "%s %(id)s {} \\' \\\\",
    "line\nbreak\ttab\r\n", " leading and trailing ", "NULL", "日本語", "a" * 1500, "../../etc/passwd", "${HOME}",
]  # fmt: skip


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
    with_nul = [{"id": "nul", "text": "w1 \0 w2"}, {"id": "n\0l", "text": "w3"}]
    source = write_jsonl(tmp_path / "corpus.jsonl", [*rows(20), *with_nul])
    summary = index(source)
    if "table" in store:
        assert (summary.skipped, summary.total) == (2, 20)
        rejects = indexes.rejects(summary)
        assert [(reject["line"], reject["id"]) for reject in rejects] == [(21, "nul"), (22, "n\0l")]
        assert all("NUL" in reject["reason"] for reject in rejects)
    else:
        assert {name: content(**store)[name][0] for name in ("nul", "n\0l")} == {"nul": "w1 \0 w2", "n\0l": "w3"}


def test_metadata_can_be_chosen_and_typed(index, store, tmp_path) -> None:
    path = tmp_path / "corpus.csv"
    path.write_text("name,body,year,note,select\n1,w1 w2,2020,x,a b\n2,w3,,y,\n3,w4,soon,z,c\n", encoding="utf-8")
    summary = index(path, field="body", id_field="name", metadata=["year:int", "select"], max_rejects=0.5)
    found = {name: metadata for name, (_, metadata, _) in content(**store).items()}
    assert found == {"1": {"year": 2020, "select": "a b"}, "2": {}}
    (reject,) = indexes.rejects(summary)
    assert (reject["line"], reject["id"]) == (4, "3")


def test_one_given_type_leaves_the_others_to_be_found(model, tmp_path) -> None:
    rows = [{**row, "score": 1 if number == 0 else number / 2} for number, row in enumerate(indexes.rows(10))]
    summary = evenspan.index(model, rows, tmp_path / "index", metadata=["year:int", "score"], progress=False)
    assert summary.added == 10


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
    monkeypatch.setattr(evenspan.indexing.reading, "_ROWS", 20)  # the first rows settle the columns
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


def test_tokens_and_truncation_are_counted(index) -> None:
    summary = index([{"id": "short", "text": "w1 w2"}, {"id": "long", "text": tiny.text(400)}])
    assert (summary.tokens, summary.truncated) == (4 + 256, 1)
    assert str(summary).startswith("Truncated after 254 tokens of text: 1 of 2 documents (50 %); ")
    assert "of the text is never read. To read all of it, use --chunk-tokens." in str(summary).splitlines()[0]
    assert index([{"id": "short", "text": "w1 w2 w3"}]).truncation == (
        "Nothing is cut off: every document fits into the 254 tokens of text that the model reads."
    )
    assert json.loads(summary.to_json())["tokens"] == 260


def test_out_of_memory_halves_the_batch(model, tmp_path, monkeypatch) -> None:
    evenspan.index(model, rows(12), f"parquet:{tmp_path / 'plain'}", "none", progress=False)
    batches = calls.watch(monkeypatch, most=3)
    evenspan.index(model, rows(12), f"parquet:{tmp_path / 'scarce'}", "none", progress=False)
    assert max(calls.sizes(batches)) > 3
    one, other = content(f"parquet:{tmp_path / 'plain'}"), content(f"parquet:{tmp_path / 'scarce'}")
    for name in one:
        np.testing.assert_allclose(np.frombuffer(one[name][2], "f4"), np.frombuffer(other[name][2], "f4"), atol=2e-6)


def test_texts_are_tokenized_once_and_the_device_is_watched(model, tmp_path, monkeypatch) -> None:
    read = []
    tokenize = TextFeatures._tokenize
    monkeypatch.setattr(TextFeatures, "_tokenize", lambda self, texts: read.extend(texts) or tokenize(self, texts))
    summary = evenspan.index(model, rows(12), f"parquet:{tmp_path / 'index'}", progress=False)
    assert [read.count(row["text"]) for row in rows(12)] == [1] * 12
    assert 0 < summary.device_seconds <= summary.encoding_seconds
    assert re.search(r"device +busy \d+% of the encoding time", str(summary))


def test_kept_and_new_documents_are_saved_from_two_threads(index, store, monkeypatch) -> None:
    """As on a GPU, where the source is read while the model computes."""
    monkeypatch.setattr(BatchRunner, "__init__", partialmethod(BatchRunner.__init__, ahead=True))
    index(rows(60), shard=ShardSize(documents=1))
    changed = [{**row, "year": 1} if number % 2 else {**row, "text": "w1 w2"} for number, row in enumerate(rows(60))]
    summary = index(changed, shard=ShardSize(documents=1))
    assert (summary.updated, summary.replaced) == (30, 30)
    found = content(**store)
    assert {name: row[0] for name, row in found.items()} == {row["id"]: row["text"] for row in changed}
