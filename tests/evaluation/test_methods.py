"""The baselines that a calibration is compared with."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from helpers import calls, copies, tiny

import evenspan
from evenspan import Calibration
from evenspan.encoding import Encoder
from evenspan.evaluation import evaluate, load_benchmark
from evenspan.evaluation.methods import (
    BASELINES,
    ChunksMax,
    LateChunking,
    SegmentAverage,
    WindowAverage,
    baseline,
    words,
)
from evenspan.models.reading import windows

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
        with pytest.raises(ValueError, match="between 1 and 30, which is what the model reads of a text, not 64"):
            evaluate(cls_model, benchmark, method=baseline(name, window=64), **QUICK)
    pieces = SegmentAverage(embedder="self", threshold=0.01).encode(Encoder(cls_model), [tiny.text(100)])
    tokens = [cls_model.encode_document(part) for part in windows(cls_model, tiny.text(100), 30)]
    mean = np.mean(tokens, axis=0)
    np.testing.assert_allclose(pieces[0][0], mean / np.linalg.norm(mean), atol=1e-5)
    cls_model.truncate_dim = 8
    with pytest.raises(ValueError, match="cannot be used with truncate_dim"):
        evaluate(cls_model, benchmark, method="late-chunking", **QUICK)


@pytest.mark.parametrize("name", [name for name in BASELINES if name != "none"])
def test_baselines(name, cls_model, benchmark) -> None:
    method = baseline(name, window=16, embedder="self", threshold=0.5)
    result = evaluate(cls_model, benchmark, method=method, **QUICK)
    assert result.method.startswith(name)
    assert result.ndcg > 0.1
    expected = {"bm25": 0, "chunks-max": 4}.get(name, 1)  # 60 words in windows of 16
    assert result.vectors_per_document == expected
    if name == "bm25":
        assert result.ndcg > 0.9


def test_baselines_by_hand(cls_model) -> None:
    text, encoder = tiny.text(50), Encoder(cls_model)
    parts = windows(cls_model, text, 16)
    assert "".join(parts) == text
    assert [len(part.split()) for part in parts] == [16, 16, 16, 2]
    vectors = cls_model.encode_document(parts)
    (chunks,) = ChunksMax(16).encode(encoder, [text])
    np.testing.assert_allclose(chunks, vectors, atol=1e-6)
    (average,) = WindowAverage(16).encode(encoder, [text])
    mean = vectors.mean(axis=0)
    np.testing.assert_allclose(average[0], mean / np.linalg.norm(mean), atol=1e-6)
    (late,) = LateChunking(20).encode(encoder, [text])
    tokens = cls_model.encode_document([text], output_value="token_embeddings")[0]
    mean = np.mean([part.mean(0).numpy() for part in tokens.split(20)], axis=0)
    np.testing.assert_allclose(late[0], mean / np.linalg.norm(mean), atol=1e-6)
    assert windows(cls_model, "", 16) == [""]
    # Left padding is not averaged in.
    cls_model.tokenizer.padding_side = "left"
    np.testing.assert_allclose(LateChunking(20).encode(encoder, [text, tiny.text(80)])[0], late, atol=1e-5)


def test_baselines_are_plain_whatever_calibration_the_model_has(cls_model) -> None:
    texts, encoder = [tiny.text(100), tiny.text(70)], Encoder(cls_model, unit=False)
    for method in (ChunksMax(64), WindowAverage(64), LateChunking(), SegmentAverage(embedder="self")):
        plain = method.encode(encoder, texts)
        with evenspan.calibrated(cls_model, SETTING, default_task="document"):
            np.testing.assert_array_equal(np.concatenate(method.encode(encoder, texts)), np.concatenate(plain))


def test_segment_average_offline_says_what_to_do(cls_model, benchmark) -> None:
    with pytest.raises(OSError, match="Name a local SentenceTransformer folder, or 'self'"):
        evaluate(cls_model, benchmark, method="segment-average", **QUICK)


def test_unknown_baselines(cls_model, benchmark) -> None:
    with pytest.raises(ValueError, match="no baseline 'magic'; there are none, segment-average"):
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
        ("bm25", {"k1": -0.1}, "k1 must be a number of at least 0, not -0.1"),
        ("bm25", {"b": 1.5}, "b must lie between 0 and 1, not 1.5"),
    ],
)
def test_settings_that_no_baseline_can_have_are_refused(name, options, says) -> None:
    with pytest.raises(ValueError, match=says):
        baseline(name, **options)


def test_memory_that_runs_out_halves_the_batch(cls_model, benchmark, monkeypatch) -> None:
    methods = (None, ChunksMax(16), "late-chunking")
    expected = [evaluate(cls_model, benchmark, method=method, **QUICK) for method in methods]
    calls.watch(monkeypatch, most=2)
    scarce = [evaluate(cls_model, benchmark, method=method, **QUICK) for method in methods]
    assert [result.per_query for result in scarce] == [result.per_query for result in expected]


def test_words_of_scripts_without_spaces() -> None:
    assert words("Ein Wort, 你好 世界!") == ["ein", "wort", "你", "好", "世", "界"]
