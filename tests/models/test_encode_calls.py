"""A calibrated SentenceTransformer encodes as it did before, except that long documents are calibrated."""

from __future__ import annotations

import copy
import pickle
import threading
from queue import SimpleQueue
from typing import Any

import numpy as np
import pytest
import torch
from helpers import tiny
from helpers.tiny import TEXTS, text
from sentence_transformers import SentenceTransformer

import evenspan
from evenspan import Calibration

SETTING = Calibration(strength=1.0, layers="all", basket_size=16)
LONG = [text(words, seed=1) for words in (200, 60, 120)]


@pytest.fixture(params=["cls", "last"])
def model(request) -> Any:
    return request.getfixturevalue(f"{request.param}_model")


def test_only_documents_are_calibrated(model) -> None:
    plain = model.encode(LONG)
    plain_query = model.encode_query(LONG)
    assert evenspan.calibrate(model, SETTING) is model
    documents = model.encode_document(LONG)
    assert np.abs(documents - plain).max(axis=1).min() > 1e-3
    np.testing.assert_array_equal(model.encode(LONG), plain)
    np.testing.assert_array_equal(model.encode_query(LONG), plain_query)
    np.testing.assert_array_equal(model.encode(LONG, task="document"), documents)
    np.testing.assert_array_equal(model.encode(LONG, task="query"), plain)
    np.testing.assert_array_equal(model.encode(LONG, task="clustering"), plain)


def test_options_of_encode(model) -> None:
    evenspan.calibrate(model, SETTING)
    documents = model.encode_document(TEXTS)
    assert documents.dtype == np.float32
    one = model.encode_document(TEXTS[1])
    assert one.shape == (32,)
    np.testing.assert_allclose(one, documents[1], atol=2e-6)
    tensor = model.encode_document(TEXTS, convert_to_tensor=True)
    assert isinstance(tensor, torch.Tensor)
    np.testing.assert_array_equal(tensor.numpy(), documents)
    short = model.encode_document(TEXTS, truncate_dim=8, normalize_embeddings=True)
    expected = documents[:, :8] / np.linalg.norm(documents[:, :8], axis=1, keepdims=True)
    np.testing.assert_allclose(short, expected, atol=1e-6)
    binary = model.encode_document(TEXTS, precision="binary")
    np.testing.assert_array_equal(binary, np.packbits(documents > 0, axis=1).view(np.int8) ^ -128)
    assert model.encode_document([]).shape == (0,)
    assert all(np.isfinite(model.encode_document(["", "w1"])).flatten())


def test_token_embeddings(model) -> None:
    """Token embeddings keep their shapes, and the pooled one is the calibrated vector."""
    plain = model.encode(LONG, output_value="token_embeddings")
    evenspan.calibrate(model, SETTING)
    tokens = model.encode_document(LONG, output_value="token_embeddings")
    assert [token.shape for token in tokens] == [token.shape for token in plain]
    pooled = torch.stack([token[0 if model[1].pooling_mode == "cls" else -1] for token in tokens])
    vectors = torch.nn.functional.normalize(pooled, dim=1).numpy()
    np.testing.assert_allclose(vectors, model.encode_document(LONG), atol=1e-6)
    everything = model.encode_document(LONG, output_value=None)
    assert set(everything[0]) >= {"token_embeddings", "sentence_embedding", "input_ids"}


def test_prompts_are_content(cls_model) -> None:
    evenspan.calibrate(cls_model, SETTING)
    prompted = cls_model.encode_document(LONG, prompt="w9 w8 w7 ")
    np.testing.assert_allclose(prompted, cls_model.encode_document([f"w9 w8 w7 {long}" for long in LONG]), atol=1e-6)


@pytest.mark.parametrize("padding", ["left", "right"])
def test_prompt_excluded_from_pooling(model, padding) -> None:
    """With include_prompt=False the pooled row of a first-token model moves behind the prompt: calibrate that one."""
    model.tokenizer.padding_side = padding
    prompt = "w9 w8 w7 "
    evenspan.calibrate(model, SETTING)
    included = model.encode_document(LONG, prompt=prompt)
    model.set_pooling_include_prompt(include_prompt=False)  # takes effect on a model that is calibrated already
    excluded = model.encode_document(LONG, prompt=prompt)
    if model[1].pooling_mode == "lasttoken":
        np.testing.assert_allclose(excluded, included, atol=2e-6)
        return
    assert np.abs(excluded - included).max() > 1e-3
    alone = np.stack([model.encode_document(long, prompt=prompt) for long in LONG])
    np.testing.assert_allclose(excluded, alone, atol=2e-6)
    # The row that is pooled is the row that was calibrated: no other row of the last layer has changed.
    with evenspan.calibrated(model, Calibration(strength=1.0, layers="last", basket_size=16)):
        tokens = model.encode_document(LONG[:1], prompt=prompt, output_value="token_embeddings")[0]
    evenspan.restore(model)
    plain = model.encode(LONG[:1], prompt=prompt, output_value="token_embeddings")[0]
    changed = ((tokens - plain).abs().max(dim=1).values > 1e-5).nonzero().flatten().tolist()
    assert changed == [4]  # <s> w9 w8 w7 and then the first token of the text


@pytest.mark.parametrize("padding", ["left", "right"])
def test_batches_and_padding_change_nothing_beyond_noise(model, padding, report) -> None:
    model.tokenizer.padding_side = padding
    mixed = TEXTS + LONG
    noise = np.abs(model.encode(mixed, batch_size=len(mixed)) - np.stack([model.encode(one) for one in mixed])).max()
    evenspan.calibrate(model, SETTING)
    together = model.encode_document(mixed, batch_size=len(mixed))
    alone = np.stack([model.encode_document(one) for one in mixed])
    off = np.abs(together - alone).max()
    assert off <= 10 * noise + 1e-6
    report(f"noise of batching, plain: {noise:.1e}")
    report(f"noise of batching, calibrated: {off:.1e}")


def test_two_threads_get_what_each_asked_for(model) -> None:
    evenspan.calibrate(model, SETTING)
    expected = {"document": model.encode_document(LONG), "query": model.encode_query(LONG)}
    failures: list[str] = []

    def work(kind: str) -> None:
        encode = model.encode_document if kind == "document" else model.encode_query
        failures.extend(kind for _ in range(25) if np.abs(encode(LONG) - expected[kind]).max() > 1e-6)

    threads = [threading.Thread(target=work, args=(kind,)) for kind in ("document", "query", "document", "query")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


def test_multi_process_pool(cls_model) -> None:
    plain = cls_model.encode(LONG)
    evenspan.calibrate(cls_model, SETTING, default_task="document")
    documents, queries = cls_model.encode_document(LONG), cls_model.encode_query(LONG)
    pool = cls_model.start_multi_process_pool(["cpu"])
    try:
        np.testing.assert_allclose(cls_model.encode_document(LONG, pool=pool), documents, atol=2e-6)
        np.testing.assert_allclose(cls_model.encode(LONG, pool=pool), documents, atol=2e-6)
        np.testing.assert_allclose(cls_model.encode(LONG, pool=pool, prompt_name="query"), queries, atol=2e-6)
        np.testing.assert_allclose(cls_model.encode(LONG, pool=pool, task="query"), plain, atol=2e-6)
    finally:
        cls_model.stop_multi_process_pool(pool)


def test_pools_from_before_the_calibration_are_refused(cls_model) -> None:
    """Their processes have the plain model: encoding with them would be a silent no-op."""
    pool = {"input": None, "output": None, "processes": []}  # as start_multi_process_pool of a plain model returns it
    evenspan.calibrate(cls_model, SETTING)
    with pytest.raises(RuntimeError, match="Stop it and start another"):
        cls_model.encode_document(LONG, pool=pool)


def test_pools_from_before_another_calibration_or_restore_are_refused(cls_model) -> None:
    evenspan.calibrate(cls_model, SETTING)
    documents = cls_model.encode_document(LONG)
    pool = cls_model.start_multi_process_pool(["cpu"])
    try:
        with evenspan.calibrated(cls_model, Calibration()):
            for encode in (cls_model.encode_document, cls_model.encode_query):
                with pytest.raises(RuntimeError, match=rf"calibrated \({SETTING}.*Stop it and start another"):
                    encode(LONG, pool=pool)
        np.testing.assert_allclose(cls_model.encode_document(LONG, pool=pool), documents, atol=2e-6)
        evenspan.restore(cls_model)
        for encode in (cls_model.encode_document, cls_model.encode):
            with pytest.raises(RuntimeError, match=rf"calibrated \({SETTING}.*Stop it and start another"):
                encode(LONG, pool=pool)
    finally:
        cls_model.stop_multi_process_pool(pool)


def test_a_pool_that_a_call_starts_when_its_model_was_restored(cls_model, monkeypatch) -> None:
    """The processes would have the plain model: neither they nor the caller would notice."""
    started = {"input": SimpleQueue(), "output": None, "processes": ["one"]}
    evenspan.calibrate(cls_model, SETTING)

    def start(model, *_):
        return started

    def restored_on_the_way(model, *args, **kwargs):
        evenspan.restore(model)
        return multi_process(model, *args, **kwargs)

    multi_process = SentenceTransformer._multi_process
    monkeypatch.setattr(SentenceTransformer, "start_multi_process_pool", start)
    monkeypatch.setattr(SentenceTransformer, "stop_multi_process_pool", lambda *_: None)
    monkeypatch.setattr(SentenceTransformer, "_multi_process", restored_on_the_way)
    with pytest.raises(RuntimeError, match="started when the model was plain"):
        cls_model.encode_document(LONG, device=["cpu"])
    assert started["input"].empty()


def test_processes_for_one_call(cls_model) -> None:
    evenspan.calibrate(cls_model, SETTING)
    documents = cls_model.encode_document(LONG)
    np.testing.assert_allclose(cls_model.encode_document(LONG, device=["cpu"]), documents, atol=2e-6)


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model))])
def test_copies_are_calibrated_and_independent(model, copied) -> None:
    plain = model.encode(LONG)
    evenspan.calibrate(model, SETTING)
    documents = model.encode_document(LONG)
    twin = copied(model)
    evenspan.restore(model)
    assert evenspan.calibration_of(twin) == SETTING
    np.testing.assert_array_equal(twin.encode_document(LONG), documents)
    np.testing.assert_array_equal(model.encode_document(LONG), plain)
    np.testing.assert_array_equal(evenspan.restore(twin).encode_document(LONG), plain)


@pytest.mark.parametrize("name", ["xlm-roberta-cls", "qwen3-lasttoken"])
def test_compiled_models(name, tmp_path) -> None:
    model = tiny.sentence_transformer(name, tmp_path)
    evenspan.calibrate(model, SETTING)
    documents, queries = model.encode_document(LONG), model.encode_query(LONG)
    model.compile(backend="aot_eager", dynamic=True)  # the whole compiler but for the slow code generation
    np.testing.assert_allclose(model.encode_document(LONG), documents, atol=1e-5)
    np.testing.assert_allclose(model.encode_query(LONG), queries, atol=1e-5)
    np.testing.assert_allclose(model.encode_document(LONG[:2]), documents[:2], atol=1e-5)
    evenspan.restore(model)
    np.testing.assert_allclose(model.encode_document(LONG), queries, atol=1e-5)


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore:flex_attention called without torch.compile")
@pytest.mark.parametrize("first", ["flex", "calibration"])
def test_flex_attention(model, first) -> None:
    with evenspan.calibrated(model, SETTING):
        documents = model.encode_document(LONG)
    steps = [
        lambda: model[0].auto_model.set_attn_implementation("flex_attention"),
        lambda: evenspan.calibrate(model, SETTING),
    ]
    with torch.compiler.set_stance("force_eager"):  # to compile it takes a minute
        for step in steps if first == "flex" else reversed(steps):
            step()
        np.testing.assert_allclose(model.encode_document(LONG), documents, atol=2e-6)
    evenspan.restore(model)
    assert model[0].auto_model.config._attn_implementation == "flex_attention"


def test_what_flex_attention_returns_beside_its_output_is_no_weights(model, monkeypatch) -> None:
    """On a GPU it is the log-sum-exp of each row."""
    from transformers import AttentionInterface
    from transformers.integrations.sdpa_attention import sdpa_attention_forward

    def flex(module, query, *args, **kwargs):
        return sdpa_attention_forward(module, query, *args, **kwargs)[0], query[..., 0]

    evenspan.calibrate(model, SETTING)
    documents = model.encode_document(LONG)
    monkeypatch.setitem(AttentionInterface._global_mapping, "sdpa", flex)
    np.testing.assert_array_equal(model.encode_document(LONG), documents)


def test_no_attention_matrix_is_made(cls_model) -> None:
    """The largest tensor that calibration itself makes is far smaller than batch × heads × queries × keys."""
    from torch.utils._python_dispatch import TorchDispatchMode

    class Largest(TorchDispatchMode):
        elements = 0

        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            result = function(*args, **(kwargs or {}))
            if isinstance(result, torch.Tensor) and "embedding" not in str(function):
                Largest.elements = max(Largest.elements, result.numel())
            return result

    texts = [text(250, seed=seed) for seed in range(4)]
    matrix = 4 * 4 * 252 * 252
    cls_model.max_seq_length = 256

    def largest(encode) -> int:
        Largest.elements = 0
        with Largest():
            encode(texts)
        return Largest.elements

    plain = largest(cls_model.encode)
    evenspan.calibrate(cls_model, SETTING)
    calibrated = largest(cls_model.encode_document)
    assert calibrated <= max(plain, matrix // 4)


def test_the_row_is_computed_in_float32_under_autocast(model) -> None:
    evenspan.calibrate(model, SETTING)
    expected = model.encode_document(LONG)
    with torch.autocast("cpu", torch.bfloat16):
        plain_noise = np.abs(model.encode_query(LONG) - evenspan.calibrate(model, SETTING).encode_query(LONG)).max()
        vectors = model.encode_document(LONG, convert_to_tensor=True).float().numpy()
    assert (vectors * expected).sum(axis=1).min() > 0.98
    assert plain_noise == 0.0


def test_training_mode_is_not_mistaken_for_another_attention(model) -> None:
    evenspan.calibrate(model, SETTING).train()
    assert model(model.preprocess(LONG), task="document")["sentence_embedding"].requires_grad


def test_gradients_flow_through_a_calibrated_pass(model) -> None:
    evenspan.calibrate(model, SETTING)
    features = model.preprocess(LONG)
    output = model(features, task="document")["sentence_embedding"]
    output.sum().backward()
    assert all(torch.isfinite(parameter.grad).all() for parameter in model.parameters() if parameter.grad is not None)
