"""Indexes of chunks: what a row is, that documents stay whole, and what a search gives."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import pytest
from helpers import tiny
from helpers.held import HeldCommand
from helpers.indexes import BEFORE_COMMIT, STORES, committed, write_jsonl

import evenspan
from evenspan.cli import main
from evenspan.corpus.chunks import Chunker
from evenspan.evaluation.methods import ChunksMax
from evenspan.indexing.plan import ShardSize

SETTING = evenspan.Calibration(basket_size=8, partition="even")
CHUNKS = {"calibration": SETTING, "chunk_tokens": 24, "overlap": 8}


def long_rows(count: int) -> list[dict[str, object]]:
    """Documents of 1 to 9 sentences with 4 to 11 words each."""
    return [
        {
            "id": f"d{number}",
            "text": " ".join(
                f"{tiny.text(4 + (number + of) % 8, seed=97 * number + of)}!" for of in range(1 + number % 9)
            ),
            "year": 2000 + number % 30,
        }
        for number in range(count)
    ]


def chunks_of(store: str, table: str | None = None) -> dict[str, list[tuple]]:
    """The rows of each document: number, span, text, metadata, vector; fails if one is there twice."""
    found = defaultdict(list)
    with evenspan.open_index(store, table=table) as opened:
        for hit in opened.rows():
            found[hit.id].append((hit.chunk, hit.span, hit.text, dict(hit.metadata), hit.vector.tobytes()))
        assert len(opened) == len(found)
    for rows in found.values():
        rows.sort(key=lambda row: row[0])
        assert [row[0] for row in rows] == list(range(len(rows)))
    return dict(found)


def test_rows_are_the_chunks_of_documents(index, store, model) -> None:
    entries = long_rows(40)
    summary = index(entries, **CHUNKS)
    found = chunks_of(**store)
    assert summary.total == 40
    assert summary.chunks == sum(map(len, found.values())) > 80
    for entry in entries:
        spans = [span for _, span, *_ in found[entry["id"]]]
        assert [entry["text"][start:end] for start, end in spans] == [row[2] for row in found[entry["id"]]]
        assert spans == next(Chunker(24, 8).spans(model.tokenizer, [entry["text"]]))
        assert {row[3]["year"] for row in found[entry["id"]]} == {entry["year"]}
    chunk = found["d8"][1]
    with evenspan.calibrated(model, SETTING):
        expected = model.encode_document([chunk[2]], normalize_embeddings=True)[0]
    np.testing.assert_allclose(np.frombuffer(chunk[4], dtype=np.float32), expected, atol=1e-5)


def test_the_index_and_the_baseline_cut_alike(model, tmp_path) -> None:
    entries = long_rows(9)
    evenspan.index(model, entries, f"parquet:{tmp_path / 'index'}", progress=False, **CHUNKS)
    found = chunks_of(f"parquet:{tmp_path / 'index'}")
    baseline = ChunksMax(24, 8, "sentences")
    assert {name: [row[2] for row in rows] for name, rows in found.items()} == {
        entry["id"]: baseline.chunks(model, entry["text"]) for entry in entries
    }


def test_documents_are_found_by_their_best_chunk(index, store, model) -> None:
    entries = long_rows(40)
    index(entries, **CHUNKS)
    rows = [(name, *row) for name, own in chunks_of(**store).items() for row in own]
    vectors = np.array([np.frombuffer(row[-1], dtype=np.float32) for row in rows])
    queries = [tiny.text(6, seed=seed) for seed in range(3)]
    with evenspan.open_index(model=model, **store) as opened:
        for query, results in zip(queries, opened.search(queries, k=12), strict=True):
            best: dict[str, tuple] = {}
            for at in np.argsort(-(vectors @ opened.encode([query])[0]), kind="stable"):
                best.setdefault(rows[at][0], rows[at])
            assert [one.id for one in results] == list(best)[:12]
            for one in results:
                assert one.span == best[one.id][2]
                assert one.part == one.text == best[one.id][3]
        filtered = opened.search(queries[0], k=40, where="year < 2010")
        assert {one.id for one in filtered} == {entry["id"] for entry in entries if entry["year"] < 2010}
        assert len(opened.search(queries[0], k=100)) == 40
        assert all(one.part in one.text for one in opened.search(queries[0], parts=True))


def test_changed_documents_replace_all_of_their_chunks(index, store) -> None:
    entries = long_rows(40)
    index(entries, **CHUNKS)
    before = chunks_of(**store)
    entries[8]["text"] = tiny.text(5, seed=1)  # from several chunks to one
    entries[0]["text"] = " ".join(f"{tiny.text(9, seed=seed)}!" for seed in range(12))  # and the other way round
    entries[17]["year"] = 1
    summary = index(entries, **CHUNKS)
    counts = (summary.added, summary.replaced, summary.updated, summary.unchanged, summary.total)
    assert counts == (0, 2, 1, 37, 40)
    after = chunks_of(**store)
    assert len(before["d8"]) > 1 == len(after["d8"])
    assert len(before["d0"]) == 1 < len(after["d0"])
    assert {row[3]["year"] for row in after["d17"]} == {1}
    assert [row[4] for row in after["d17"]] == [row[4] for row in before["d17"]]
    others = before.keys() - {"d0", "d8", "d17"}
    assert all(after[name] == before[name] for name in others)
    assert index(entries, **CHUNKS).unchanged == 40


def test_deleted_documents_take_all_of_their_chunks_along(index, store, model) -> None:
    index(long_rows(40), **CHUNKS)
    before = chunks_of(**store)
    with evenspan.open_index(model=model, **store) as opened:
        assert opened.delete(ids=["d8", "d17", "nobody"]) == 2
        assert opened.delete(where="year = 2003") == 2
        gone = {"d8", "d17", "d3", "d33"}
        assert not gone & {one.id for one in opened.search("w1 w2", k=40)}
    assert chunks_of(**store) == {name: rows for name, rows in before.items() if name not in gone}
    kept = [entry for entry in long_rows(40) if entry["id"] not in gone][5:]
    index(kept, prune=True, **CHUNKS)
    assert chunks_of(**store) == {entry["id"]: before[entry["id"]] for entry in kept}


def test_chunks_are_part_of_what_an_index_is(index, store, model) -> None:
    index(long_rows(5), **CHUNKS)
    for other in ({"chunk_tokens": None, "overlap": 0}, {"chunk_tokens": 32}, {"overlap": 0}):
        with pytest.raises(ValueError, match="made with other settings") as refused:
            index(long_rows(5), **{**CHUNKS, **other})
        assert "chunk_tokens" in str(refused.value) or "overlap" in str(refused.value)
    with evenspan.open_index(model=model, **store) as opened:
        assert (opened.settings.chunk_tokens, opened.settings.overlap) == (24, 8)
    index(long_rows(5), replace=True)
    with evenspan.open_index(model=model, **store) as opened:
        assert not opened.settings.to_dict().keys() & {
            "chunk_tokens",
            "overlap",
            "full_text",
            "vectors",
            "vector_index",
        }
        assert all(hit.chunk is None for hit in opened.rows())


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"chunk_tokens": 15}, "chunk_tokens must be at least 16, not 15"),
        (
            {"chunk_tokens": 300},
            "chunk_tokens must be between 16 and 254, the tokens of text that the model reads, not 300",
        ),
        ({"overlap": 8}, "overlap is for chunks"),
        (
            {"chunk_tokens": 24, "overlap": 24},
            "overlap must be at least 0 and less than the 24 tokens of a chunk, not 24",
        ),
    ],
)
def test_chunks_that_cannot_be(options, words, model, tmp_path) -> None:
    with pytest.raises(ValueError, match=words):
        evenspan.index(model, long_rows(2), tmp_path / "index", progress=False, **options)


def test_chunks_that_are_too_short_to_be_calibrated_are_named(model, tmp_path) -> None:
    with pytest.warns(UserWarning, match="Chunks of 24 tokens are too short for baskets of 128"):
        evenspan.index(model, long_rows(2), tmp_path / "index", chunk_tokens=24, progress=False)


@pytest.mark.parametrize("kind", STORES)
def test_a_killed_run_goes_on(kind, model_folder, tmp_path, request) -> None:
    corpus = write_jsonl(tmp_path / "corpus.jsonl", long_rows(300))
    undisturbed = f"parquet:{tmp_path / 'undisturbed'}"
    evenspan.index(model_folder, corpus, undisturbed, shard=ShardSize(10), progress=False, device="cpu", **CHUNKS)
    store, table = f"{kind}:{tmp_path / 'index'}", None
    if kind == "postgres":
        store, table = request.getfixturevalue("server").get_uri(), "chunks_killed"
    command = ["index", model_folder, str(corpus), store, "--calibration", str(SETTING), "--chunk-tokens", "24"]
    command += ["--overlap", "8", "--shard-documents", "10", "--device", "cpu", "--quiet"]
    command += ["--table", table] if table else []
    process = HeldCommand(command, tmp_path, BEFORE_COMMIT[kind], 6)
    process.wait()
    process.kill()
    assert committed(store, table) == 60
    assert main(command) == 0
    assert chunks_of(store, table) == chunks_of(undisturbed)
