"""The one encoder: batches by tokens, memory that runs out, streams, other poolings, what is refused."""

from __future__ import annotations

from contextlib import contextmanager

import numpy as np
import pytest
import torch
from helpers import calls, copies, tiny
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Pooling, StaticEmbedding
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace

import evenspan
from evenspan import Calibration, sweeps
from evenspan.encoding import Encoder
from evenspan.evaluation import evaluate, load_benchmark
from evenspan.evaluation.methods import ChunksMax
from evenspan.models import windows
from evenspan.progress import ProgressBar

TEXTS = [tiny.text(3 + number % 17, number) for number in range(50)]
SETTING = Calibration(strength=1.0, basket_size=16)


def test_vectors_are_those_of_the_model_in_the_order_of_the_texts(cls_model) -> None:
    encoder = Encoder(cls_model, batch_tokens=100)
    np.testing.assert_allclose(encoder.encode(TEXTS), cls_model.encode_document(TEXTS), atol=2e-6)
    np.testing.assert_array_equal(encoder.encode(TEXTS), encoder.encode(TEXTS))
    with evenspan.calibrated(cls_model, SETTING):
        long = [tiny.text(words) for words in (40, 100, 3)]
        np.testing.assert_allclose(encoder.encode(long), cls_model.encode_document(long), atol=2e-6)
    queries = Encoder(cls_model, role="query").encode(TEXTS)
    np.testing.assert_allclose(queries, cls_model.encode_query(TEXTS), atol=2e-6)
    prompted = Encoder(cls_model, prompt="w9 ").encode(TEXTS)
    np.testing.assert_allclose(prompted, cls_model.encode_document(TEXTS, prompt="w9 "), atol=2e-6)
    assert prompted.dtype == np.float32


def test_batches_keep_to_their_budget_longest_first(cls_model, monkeypatch) -> None:
    batches = calls.watch(monkeypatch)
    encoder = Encoder(cls_model, batch_tokens=64)
    counts = encoder.count_tokens(TEXTS)
    assert counts == [len(text.split()) + 2 for text in TEXTS]
    encoder.encode(TEXTS)
    lengths = [batch["attention_mask"].sum(1).tolist() for batch in batches]
    assert sorted(length for batch in lengths for length in batch) == sorted(counts)
    assert all(len(batch) * max(batch) <= 64 for batch in lengths)
    assert [max(batch) for batch in lengths] == sorted((max(batch) for batch in lengths), reverse=True)
    batches.clear()
    Encoder(cls_model, batch_size=7).encode(TEXTS)
    assert calls.sizes(batches) == [7] * 7 + [1]


def test_on_a_gpu_the_usual_size_of_a_batch_is_no_limit(cls_model, monkeypatch) -> None:
    assert [Encoder(cls_model, batch_size=size).batch_size for size in (None, 32, 7)] == [1024, 32, 7]
    monkeypatch.setattr(type(cls_model), "device", torch.device("cuda"))
    assert [Encoder(cls_model, batch_size=size).batch_size for size in (None, 32, 7)] == [1024, 1024, 7]


def test_tokens_are_counted_with_the_prompt_and_without_a_limit(cls_model) -> None:
    cls_model.max_seq_length = 20
    assert Encoder(cls_model).count_tokens([tiny.text(30), ""]) == [32, 2]
    assert Encoder(cls_model, prompt="w1 w2 ").count_tokens(["w3"]) == [5]
    assert Encoder(cls_model, role="query").count_tokens(["w3"]) == [6]  # the model's own, w1 w2 w3
    assert Encoder(cls_model).count_tokens([]) == []


def test_memory_that_runs_out_halves_the_batch_for_good(cls_model, monkeypatch) -> None:
    expected = Encoder(cls_model).encode(TEXTS)
    batches = calls.watch(monkeypatch, most=2)
    encoder = Encoder(cls_model, batch_tokens=64)
    assert encoder.encode(["w1"] * 16).shape == (16, 32)
    assert calls.sizes(batches) == [16, 8, 4, 2, 2, 2, 2, 2, 2, 2, 2], (
        "what is known to be too large is not tried again"
    )
    assert encoder.batch_tokens == 6, "halved once for both halves: two texts of three tokens"
    batches.clear()
    np.testing.assert_allclose(encoder.encode(TEXTS), expected, atol=2e-6)
    assert max(calls.sizes(batches)) <= 2
    calls.watch(monkeypatch, most=0)
    with pytest.raises(torch.OutOfMemoryError):
        encoder.encode(["w1"])


def test_only_attempts_that_end_well_count(cls_model, monkeypatch) -> None:
    calls.watch(monkeypatch, most=4)
    ended: list[bool] = []

    @contextmanager
    def attempt():
        try:
            yield
        except torch.OutOfMemoryError:
            ended.append(False)
            raise
        ended.append(True)

    with ProgressBar("Encoding", 16, shown=False) as bar:
        Encoder(cls_model, batch_size=8).encode(["w1 w2"] * 16, bar=bar, attempt=attempt)
    assert (ended.count(True), ended.count(False)) == (4, 1), "the second batch is halved before it is tried"
    assert bar.done == 16


def test_length_is_one_where_the_model_compares_by_cosine(cls_model) -> None:
    bare = SentenceTransformer(modules=list(cls_model)[:2], device="cpu")
    lengths = np.linalg.norm(Encoder(bare).encode(TEXTS), axis=1)
    np.testing.assert_allclose(lengths, 1.0, atol=1e-6)
    own = bare.encode_document(TEXTS)
    np.testing.assert_allclose(Encoder(bare, unit=False).encode(TEXTS), own, atol=1e-5)
    bare.similarity_fn_name = "dot"
    np.testing.assert_allclose(Encoder(bare).encode(TEXTS), own, atol=1e-5)


def test_streams_are_encoded_window_by_window(cls_model, monkeypatch) -> None:
    monkeypatch.setattr(windows, "WINDOW_TEXTS", 8)
    read = []

    def texts():
        for text in TEXTS:
            read.append(text)
            yield text

    arrays = Encoder(cls_model).stream(texts())
    first = next(arrays)
    assert (len(first), len(read)) == (8, 8), "no more is read than is held"
    together = np.concatenate([first, *arrays])
    np.testing.assert_allclose(together, cls_model.encode_document(TEXTS), atol=2e-6)


@pytest.mark.parametrize("side", ["left", "right"])
def test_another_pooling_sees_the_tokens_and_no_padding(cls_model, side) -> None:
    cls_model.tokenizer.padding_side = side
    seen = []

    def mean(tokens):
        seen.extend(len(of_text) for of_text in tokens)
        return torch.stack([of_text.mean(0) for of_text in tokens])

    vectors = Encoder(cls_model).encode(TEXTS, pool=mean)
    assert sorted(seen) == sorted(len(text.split()) + 2 for text in TEXTS)
    cls_model.tokenizer.padding_side = "right"
    pooled = SentenceTransformer(modules=[cls_model[0], Pooling(32, "mean")], device="cpu")
    np.testing.assert_allclose(vectors, pooled.encode(TEXTS, normalize_embeddings=True), atol=1e-5)
    cls_model.prompts["document"] = "w3 w4 "
    cls_model.tokenizer.padding_side = side
    seen.clear()
    Encoder(cls_model).encode(TEXTS, pool=mean)
    assert sorted(seen) == sorted(len(text.split()) + 4 for text in TEXTS)


def test_models_without_a_transformer() -> None:
    vocabulary = Tokenizer(WordLevel({f"w{number}": number for number in range(100)} | {"?": 100}, unk_token="?"))
    vocabulary.pre_tokenizer = Whitespace()
    model = SentenceTransformer(modules=[StaticEmbedding(vocabulary, embedding_dim=16)], device="cpu")
    encoder = Encoder(model)
    assert encoder.count_tokens(["w1 w2", ""]) == [2, 0]
    np.testing.assert_allclose(
        encoder.encode(TEXTS), model.encode_document(TEXTS, normalize_embeddings=True), atol=1e-6
    )


def test_bad_input_is_refused(cls_model) -> None:
    with pytest.raises(ValueError, match="batch_size must be at least 1, not 0"):
        Encoder(cls_model, batch_size=0)
    with pytest.raises(ValueError, match="batch_tokens must be at least 1, not -5"):
        Encoder(cls_model, batch_tokens=-5)
    with pytest.raises(TypeError, match="not one string"):
        Encoder(cls_model).encode("a text")
    assert Encoder(cls_model).encode([]).shape == (0, 32)
    with torch.no_grad():
        cls_model[0].auto_model.embeddings.LayerNorm.weight.fill_(torch.nan)
    with pytest.raises(RuntimeError, match="not finite: use float32"):
        Encoder(cls_model).encode(TEXTS)
    assert np.isnan(Encoder(cls_model, check_finite=False).encode(TEXTS)).all()


class Bars:
    """Stands for rich: remembers the name of each bar, and how far it got."""

    def __init__(self) -> None:
        self.states: dict[str, tuple[float, float]] = {}

    def add_task(self, description: str, **_: object) -> str:
        return description

    def start(self) -> None:
        pass

    def stop(self) -> None:
        pass

    def update(self, task: str, completed: float, total: float, **_: object) -> None:
        self.states[task] = (completed, total)


def test_bars_say_what_is_encoded_and_get_full(cls_model, tmp_path, monkeypatch) -> None:
    bars = Bars()
    monkeypatch.setattr("evenspan.progress._bar", lambda: bars)
    benchmark = load_benchmark(copies.directory(tmp_path / "mine", documents=4))
    setting = Calibration(basket_size=16)
    sweeps.sweep(cls_model, benchmark, [setting], resamples=0)
    for method in ("none", ChunksMax(16)):
        evaluate(cls_model, benchmark, method=method, resamples=0, cache=tmp_path / "cache")
    evenspan.audit(cls_model, [tiny.text(100, seed) for seed in range(10)], setting)
    sweeps.encode(cls_model, TEXTS, [setting], show_progress_bar=True)
    assert bars.states == {
        "Encoding documents (plain and 1 setting)": (50, 50),
        "Encoding documents and queries (plain)": (16, 16),
        "Encoding documents and queries (chunks-max,window=16)": (4 * 4 + 12, 4 * 4 + 12),
        "Encoding the segments of documents": (50, 50),
        "Encoding documents (plain)": (10, 10),
        "Encoding documents (calibrated)": (10, 10),
    }
    bars.states.clear()
    evaluate(cls_model, benchmark, resamples=0, progress=False)
    evaluate(cls_model, benchmark, method="bm25", resamples=0)  # encodes nothing
    assert not bars.states


@pytest.mark.parametrize("on_gpu", [False, True])
def test_tokenized_texts_give_what_texts_give(on_gpu, cls_model) -> None:
    counts: list[int] = []
    encoder = Encoder(cls_model, counted=counts.extend)
    encoder._on_gpu = on_gpu  # which encodes a list window by window
    texts = [tiny.text(1 + number % 7, number) for number in range(600)]
    tokenized = encoder.tokenize(texts)
    np.testing.assert_allclose(encoder.encode_tokenized(tokenized), encoder.encode(texts), atol=2e-6)
    assert counts == tokenized.counts * 2
