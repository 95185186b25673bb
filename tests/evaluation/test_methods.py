"""The baselines that a calibration is compared with."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from helpers import calls, copies, tiny

import evenspan
from evenspan import Calibration
from evenspan.corpus.chunks import token_places
from evenspan.corpus.terms import words
from evenspan.encoding import Encoder
from evenspan.evaluation import compare, evaluate, load_benchmark
from evenspan.evaluation.methods import (
    BASELINES,
    ChunksMax,
    Hybrid,
    LateChunking,
    SegmentAverage,
    TokenAverage,
    WindowAverage,
    baseline,
)
from evenspan.formatting import method_name

SETTING = Calibration(strength=1.0, layers="all", basket_size=16)


QUICK = {"progress": False, "resamples": 200}


@pytest.fixture
def folder(tmp_path):
    return copies.directory(tmp_path / "mine", documents=15)


@pytest.fixture
def benchmark(folder):
    return load_benchmark(folder)


def test_bm25_does_not_find_what_shares_no_word(cls_model, benchmark) -> None:
    lost = dataclasses.replace(benchmark.collections[0].queries[0], text="zzz")
    queries = (lost, *benchmark.collections[0].queries[1:])
    changed = dataclasses.replace(
        benchmark, collections=(dataclasses.replace(benchmark.collections[0], queries=queries),)
    )
    result = evaluate(cls_model, changed, method="bm25", **QUICK)
    assert result.per_query[0].scores == {"ndcg@10": 0.0, "recall@10": 0.0}


def test_windows_that_the_model_would_cut_off_are_refused_before_encoding(cls_model, benchmark) -> None:
    cls_model.max_seq_length = 32
    for name in ("window-average", "chunks-max"):
        with pytest.raises(ValueError, match="between 1 and 30, the tokens of text that the model reads, not 64"):
            evaluate(cls_model, benchmark, method=baseline(name, window=64), **QUICK)
    pieces = SegmentAverage(embedder="self", threshold=0.01).encode(Encoder(cls_model), [tiny.text(100)])
    tokens = [cls_model.encode_document(part) for part in ChunksMax(30).chunks(cls_model, tiny.text(100))]
    mean = np.mean(tokens, axis=0)
    np.testing.assert_allclose(pieces[0][0], mean / np.linalg.norm(mean), atol=1e-5)
    cls_model.truncate_dim = 8
    for name in ("late-chunking", "token-average"):
        with pytest.raises(ValueError, match="cannot be used with truncate_dim"):
            evaluate(cls_model, benchmark, method=name, **QUICK)


@pytest.mark.parametrize("name", [name for name in BASELINES if name != "none"])
def test_baselines(name, cls_model, benchmark) -> None:
    method = baseline(name, window=16, embedder="self", threshold=0.5)
    result = evaluate(cls_model, benchmark, method=method, **QUICK)
    assert result.method.startswith(name)
    assert result.ndcg > 0.1
    expected = {"bm25": 0, "chunks-max": 4, "late-chunking": 4}.get(name, 1)  # 60 words in windows of 16
    assert result.vectors_per_document == expected
    if name == "bm25":
        assert result.ndcg > 0.9


def test_baselines_by_hand(cls_model) -> None:
    text, encoder = tiny.text(50), Encoder(cls_model)
    parts = ChunksMax(16).chunks(cls_model, text)
    assert "".join(parts) == text
    assert [len(part.split()) for part in parts] == [16, 16, 16, 2]
    vectors = cls_model.encode_document(parts)
    (chunks,) = ChunksMax(16).encode(encoder, [text])
    np.testing.assert_allclose(chunks, vectors, atol=1e-6)
    (average,) = WindowAverage(16).encode(encoder, [text])
    mean = vectors.mean(axis=0)
    np.testing.assert_allclose(average[0], mean / np.linalg.norm(mean), atol=1e-6)
    (whole,) = TokenAverage(20).encode(encoder, [text])
    tokens = cls_model.encode_document([text], output_value="token_embeddings")[0]
    means = np.array([part.mean(0).numpy() for part in tokens.split(20)])
    mean = means.mean(axis=0)
    np.testing.assert_allclose(whole[0], mean / np.linalg.norm(mean), atol=1e-6)
    texts = [tiny.text(80), text, tiny.text(20)]  # shortest last: batches come longest first
    late = LateChunking(20).encode(encoder, texts)
    np.testing.assert_allclose(late[1], means, atol=1e-6)
    assert [len(chunks) for chunks in late] == [5, 3, 2]  # with the special tokens
    (overlapping,) = LateChunking(20, overlap=8).encode(encoder, [text])
    np.testing.assert_allclose(overlapping[1], tokens[12:32].mean(0).numpy(), atol=1e-6)
    assert ChunksMax(16).chunks(cls_model, "") == [""]
    # Left padding is not averaged in.
    cls_model.tokenizer.padding_side = "left"
    for method, expected in ((TokenAverage(20), whole), (LateChunking(20), means)):
        np.testing.assert_allclose(method.encode(encoder, [text, tiny.text(80)])[0], expected, atol=1e-5)


def test_averages_have_length_1_only_where_length_does_not_count(cls_model) -> None:
    text, vectors = tiny.text(50), cls_model.encode_document(ChunksMax(16).chunks(cls_model, tiny.text(50)))
    cls_model.similarity_fn_name = "dot"
    (average,) = WindowAverage(16).encode(Encoder(cls_model), [text])
    np.testing.assert_allclose(average[0], vectors.mean(axis=0), atol=1e-6)
    assert np.linalg.norm(average) < 0.999
    (tokens,) = TokenAverage(16).encode(Encoder(cls_model), [text])
    assert abs(np.linalg.norm(tokens) - 1) > 1e-3


SENTENCES = (
    "One two three. Four five six seven! Eight nine? " + " ".join(f"w{number}" for number in range(12)) + ". Ten."
)


def test_chunks_overlap_and_end_with_sentences(cls_model) -> None:
    pieces = ChunksMax(12, cut="sentences").chunks(cls_model, SENTENCES)
    assert "".join(pieces) == SENTENCES
    for piece in pieces:
        assert 0 < len(token_places(cls_model.tokenizer, [piece])[0]) <= 12
    assert pieces[0].rstrip()[-1] in ".!?"
    short = " ".join(f"W{number} w{number + 1}!" for number in range(20))
    for method, text in ((ChunksMax(10, overlap=4), SENTENCES), (ChunksMax(12, overlap=6, cut="sentences"), short)):
        count, parts = len(token_places(cls_model.tokenizer, [text])[0]), method.chunks(cls_model, text)
        sizes = [len(token_places(cls_model.tokenizer, [part])[0]) for part in parts]
        assert max(sizes) <= method.window
        assert sum(sizes) > count, "some tokens are in two chunks"
        assert text.startswith(parts[0])
        assert text.endswith(parts[-1])
    assert ChunksMax(64, overlap=8, cut="sentences").chunks(cls_model, "") == [""]
    assert ChunksMax(64).name == "chunks-max,window=64"
    assert ChunksMax(64, 8, "sentences").name == "chunks-max,window=64,overlap=8,cut=sentences"


def test_chunks_are_calibrated_one_by_one(cls_model, benchmark) -> None:
    text, encoder = tiny.text(100), Encoder(cls_model)
    method = ChunksMax(50, calibration=SETTING)
    (chunks,) = method.encode(encoder, [text])
    with evenspan.calibrated(cls_model, SETTING):
        expected = cls_model.encode_document(method.chunks(cls_model, text))
    np.testing.assert_allclose(chunks, expected, atol=1e-5)
    assert np.abs(chunks - ChunksMax(50).encode(encoder, [text])[0]).max() > 1e-3
    assert method.name == f"chunks-max,window=50+{SETTING}"
    assert method_name(method.name).startswith("chunks-max,window=50 + soft λ 1")


def test_hybrid_fuses_ranks(cls_model, benchmark) -> None:
    fused = list(Hybrid(k=1).fuse([iter([["a", "b", "c"]]), iter([["c", "a"]])], 2))
    assert fused == [["a", "c"]]  # a: 1/2 + 1/3, c: 1/4 + 1/2
    results = {name: evaluate(cls_model, benchmark, method=name, **QUICK) for name in ("none", "bm25", "hybrid")}
    assert results["hybrid"].ndcg > results["none"].ndcg
    assert results["hybrid"].bytes_per_document == pytest.approx(
        results["none"].bytes_per_document + results["bm25"].bytes_per_document
    )
    assert results["none"].bytes_per_document == 4 * cls_model.get_embedding_dimension()
    table = compare([results[name] for name in ("none", "hybrid", "bm25")])
    assert [row.method[:6] for row in table.sorted_by("bytes").rows] == ["none", "bm25,k", "hybrid"]
    assert [row.method[:6] for row in table.sorted_by("vectors").rows] == ["none", "bm25,k", "hybrid"]
    assert "bytes/document" in str(table)
    with pytest.raises(ValueError, match=r"Unknown column 'price'\. Available: vectors, bytes"):
        table.sorted_by("price")
    with pytest.raises(ValueError, match="makes vectors, not with bm25"):
        Hybrid(dense=baseline("bm25"))


def test_bm25_stems_what_it_has_a_stemmer_for() -> None:
    pytest.importorskip("Stemmer")
    english = {"a": "The farmers of the village were harvesting.", "b": "The sea is in the south of the island."}
    index = baseline("bm25").index(english)
    assert index.language == "english"
    assert list(index.rank(["harvest", "villages"], 5)) == [["a"], ["a"]]
    assert "Snowball, english" in index.remark()
    plain = baseline("bm25", stemmer="none").index(english)
    assert list(plain.rank(["harvest"], 5)) == [[]]
    german = baseline("bm25").index(
        {"a": "Die Häuser und die Straßen sind in der Stadt.", "b": "Ein Hund ist auf dem Feld."}
    )
    assert (german.language, list(german.rank(["Haus Straße"], 5))) == ("german", [["a"]])
    chinese = baseline("bm25").index({"a": "京都是日本的城市", "b": "东京大学"})
    assert chinese.language is None
    assert next(chinese.rank(["东京"], 5)) == ["b"], "京 alone is in both"
    with pytest.raises(ValueError, match=r"Unknown stemmer 'klingon'\. Available: auto, none"):
        baseline("bm25", stemmer="klingon")


def test_segment_average_says_what_it_ran(cls_model, benchmark) -> None:
    result = evaluate(cls_model, benchmark, method=SegmentAverage(embedder="self"), **QUICK)
    assert any("threshold 0.8, chunk_size 2048" in note and "similarity_window 3" in note for note in result.notes)


def test_baselines_are_plain_whatever_calibration_the_model_has(cls_model) -> None:
    texts, encoder = [tiny.text(100), tiny.text(70)], Encoder(cls_model, unit=False)
    methods = (ChunksMax(64), WindowAverage(64), TokenAverage(), LateChunking(), SegmentAverage(embedder="self"))
    for method in methods:
        plain = method.encode(encoder, texts)
        with evenspan.calibrated(cls_model, SETTING, default_task="document"):
            np.testing.assert_array_equal(np.concatenate(method.encode(encoder, texts)), np.concatenate(plain))


def test_segment_average_offline_says_what_to_do(cls_model, benchmark) -> None:
    with pytest.raises(OSError, match="Name a local SentenceTransformer folder, or 'self'"):
        evaluate(cls_model, benchmark, method="segment-average", **QUICK)


def test_unknown_baselines(cls_model, benchmark) -> None:
    with pytest.raises(ValueError, match=r"Unknown baseline 'magic'\. Available: none, segment-average"):
        evaluate(cls_model, benchmark, method="magic", **QUICK)
    with pytest.raises(ValueError, match="not both"):
        evaluate(cls_model, benchmark, SETTING, method="bm25", **QUICK)


@pytest.mark.parametrize(
    ("name", "options", "says"),
    [
        ("window-average", {"window": 0}, "window must be at least 1, not 0"),
        ("chunks-max", {"window": -3}, "window must be at least 1, not -3"),
        ("late-chunking", {"window": 0}, "window must be at least 1, not 0"),
        ("segment-average", {"threshold": 5}, "threshold must be greater than 0 and less than 1, not 5"),
        ("segment-average", {"threshold": 0.0}, "threshold must be greater than 0"),
        ("segment-average", {"chunk_size": 0}, "chunk_size must be at least 1, not 0"),
        (
            "chunks-max",
            {"window": 8, "overlap": 8},
            "overlap must be at least 0 and less than the 8 tokens of a chunk, not 8",
        ),
        ("chunks-max", {"cut": "words"}, "cut must be tokens or sentences, not 'words'"),
        ("late-chunking", {"cut": "sentences"}, "cut after tokens"),
        ("hybrid", {"k": 0}, "k must be at least 1, not 0"),
        ("bm25", {"k1": -0.1}, "k1 must be a number of at least 0, not -0.1"),
        ("bm25", {"b": 1.5}, "b must lie between 0 and 1, not 1.5"),
    ],
)
def test_settings_that_no_baseline_can_have_are_refused(name, options, says) -> None:
    with pytest.raises(ValueError, match=says):
        baseline(name, **options)


def test_memory_that_runs_out_halves_the_batch(cls_model, benchmark, monkeypatch) -> None:
    methods = (None, ChunksMax(16), "late-chunking", "token-average")
    expected = [evaluate(cls_model, benchmark, method=method, **QUICK) for method in methods]
    calls.watch(monkeypatch, most=2)
    scarce = [evaluate(cls_model, benchmark, method=method, **QUICK) for method in methods]
    assert [result.per_query for result in scarce] == [result.per_query for result in expected]


def test_words_of_scripts_without_spaces() -> None:
    assert words("Ein Wort, 你好 世界!") == ["ein", "wort", "你", "好", "世", "界"]
