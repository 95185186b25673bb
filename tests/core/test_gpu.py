"""What only a GPU can show: the fused kernels are used, nothing waits for the device, graphs and compilers work."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from helpers import calls, tiny

import evenspan
from evenspan import Calibration
from evenspan.core import every_row
from evenspan.core.calls import baskets_of
from evenspan.core.rows import fused_rows, replace_rows
from evenspan.encoding import Encoder
from evenspan.models.batches import BatchRunner

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")
SETTING = Calibration(strength=1.0, basket_size=16)
NAMES = ["xlm-roberta-cls", "bert-decoder-lasttoken", "qwen3-lasttoken", "llama-lasttoken"]


@pytest.fixture(params=NAMES)
def model(request, tmp_path):
    built = tiny.sentence_transformer(request.param, tmp_path)
    evenspan.calibrate(built, SETTING)
    return built


def features(model, dtype=None):
    found = model.preprocess(tiny.TEXTS)
    return {name: value.cuda() if isinstance(value, torch.Tensor) else value for name, value in found.items()}


@torch.inference_mode()
def encode(model, inputs):
    return model(dict(inputs), task="document", pooled_only=True)["sentence_embedding"]


def test_kernels_agree_with_the_cpu(model, monkeypatch) -> None:
    expected = model.encode_document(tiny.TEXTS, batch_size=7, convert_to_tensor=True)
    calls = []
    monkeypatch.setattr("evenspan.core.rows.fused_rows", lambda *args: calls.append(1) or fused_rows(*args))
    vectors = model.cuda().encode_document(tiny.TEXTS, batch_size=7, convert_to_tensor=True)
    assert calls, "the fused kernels were not used"
    torch.testing.assert_close(vectors.cpu(), expected, atol=2e-5, rtol=0)


@pytest.mark.parametrize("partition", ["paper", "even"])
@pytest.mark.parametrize("name", ["xlm-roberta-mean", "nomic_bert-mean", "gemma3-mean"])
def test_every_row_agrees_with_the_cpu(name, partition, tmp_path, monkeypatch) -> None:
    model = tiny.sentence_transformer(name, tmp_path)
    evenspan.calibrate(model, Calibration(strength=0.7, basket_size=16, partition=partition))
    expected = model.encode_document(tiny.TEXTS, batch_size=7, convert_to_tensor=True)
    calls, fused = [], every_row.fused_every_row
    monkeypatch.setattr(every_row, "fused_every_row", lambda *args: calls.append(1) or fused(*args))
    vectors = model.cuda().encode_document(tiny.TEXTS, batch_size=7, convert_to_tensor=True)
    assert calls, "the fused kernel was not used"
    torch.testing.assert_close(vectors.cpu(), expected, atol=5e-5, rtol=0)


@pytest.mark.filterwarnings("ignore:Synchronization debug mode is a prototype")
def test_nothing_waits_for_the_device(model) -> None:
    inputs = features(model.cuda())
    mask = inputs.pop("attention_mask")  # transformers itself looks whether a mask hides anything
    inputs["attention_mask"] = torch.ones_like(mask)
    encode(model, inputs)
    transformer = model[0]
    ids = {name: inputs[name] for name in ("input_ids", "attention_mask")}
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")  # whatever waits raises
    try:
        geometry = baskets_of(ids, transformer.setting.calls.pooling, SETTING)
        query, key = torch.randn(2, *mask.shape, 4, 8, device="cuda").transpose(2, 3)
        plain = query.transpose(1, 2).contiguous()
        output = replace_rows(plain, query, key, key, geometry, SETTING, 0.3)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert output.isfinite().all()


def test_cuda_graphs(model) -> None:
    """A captured pass, played again on other tokens, gives what an ordinary pass gives."""
    inputs = features(model.cuda())
    inputs = {name: inputs[name] for name in ("input_ids", "attention_mask")}
    inputs["attention_mask"] = torch.ones_like(inputs["attention_mask"])
    other = inputs["input_ids"].flip(0).clone()
    expected = encode(model, {**inputs, "input_ids": other})
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(3):
            encode(model, inputs)
    stream.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = encode(model, inputs)
    inputs["input_ids"].copy_(other)
    graph.replay()
    torch.testing.assert_close(captured, expected, atol=1e-5, rtol=0)


@pytest.mark.parametrize("part", ["model", "module"])
def test_compiled(model, part) -> None:
    inputs = features(model.cuda())
    expected = encode(model, inputs)
    whole = model[0] if part == "module" else model[0].auto_model
    whole.forward = torch.compile(whole.forward)
    torch.testing.assert_close(encode(model, inputs), expected, atol=1e-5, rtol=0)


HALF_NAMES = [*NAMES, "modernbert-cls", "gte-cls", "gemma3-lasttoken", "mistral-lasttoken"]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", HALF_NAMES)
def test_batches_without_padding(name, dtype, tmp_path, monkeypatch, caplog) -> None:
    """torch's own kernel: grouped heads, causal and not, with windows; plain and calibrated."""
    model = tiny.sentence_transformer(name, tmp_path).to(dtype).cuda()
    texts = [text for text in tiny.TEXTS if text]
    expected = {}
    with monkeypatch.context() as patch:
        patch.setattr("evenspan.models.layouts.runs_on", lambda _: False)
        expected["plain"] = Encoder(model).encode(texts)
        with evenspan.calibrated(model, SETTING):
            expected["calibrated"] = Encoder(model).encode(texts)
    batches = calls.watch(monkeypatch)
    with caplog.at_level("DEBUG", logger="evenspan"):
        vectors = {"plain": Encoder(model).encode(texts)}
        with evenspan.calibrated(model, SETTING):
            vectors["calibrated"] = Encoder(model).encode(texts)
    assert "cu_seq_lens_q" in batches[-1], caplog.text
    for kind, own in vectors.items():
        off = np.linalg.norm(own - expected[kind], axis=1)
        assert off.max() < (0.02 if dtype == torch.float16 else 0.1), kind


def test_nothing_waits_for_a_batch(tmp_path, monkeypatch) -> None:
    """Between the first batch and the fetching of vectors nobody waits for the device."""
    model = tiny.sentence_transformer("xlm-roberta-cls", tmp_path).half().cuda()
    evenspan.calibrate(model, SETTING)
    texts = [tiny.text(20 + number % 150, number) for number in range(300)]
    Encoder(model, batch_tokens=4096).encode(texts)  # verified, and kernels compiled
    launch = BatchRunner.launch

    def watched(self, window):
        torch.cuda.set_sync_debug_mode("error")
        try:
            return launch(self, window)
        finally:
            torch.cuda.set_sync_debug_mode("default")

    monkeypatch.setattr(BatchRunner, "launch", watched)
    assert np.isfinite(Encoder(model, batch_tokens=4096).encode(texts)).all()


def test_streams_grow_their_batches_and_few_kernels_are_compiled(tmp_path) -> None:
    model = tiny.sentence_transformer("xlm-roberta-cls", tmp_path).half().cuda()
    evenspan.calibrate(model, SETTING)
    from evenspan.core.triton.launch import compiled_kernels

    before = compiled_kernels()
    texts = (tiny.text(5 + number % 200, number % 50) for number in range(20_000))
    encoder = Encoder(model, grows=True)
    rows = sum(len(vectors) for vectors in encoder.stream(texts))
    assert rows == 20_000
    assert encoder.batch_tokens >= 16_384
    assert encoder.busy_seconds > 0
    assert compiled_kernels() - before < 10


def test_lists_streams_and_models_agree(tmp_path) -> None:
    model = tiny.sentence_transformer("qwen3-lasttoken", tmp_path).half().cuda()
    evenspan.calibrate(model, SETTING)
    texts = [tiny.text(5 + number % 200, number) for number in range(1500)]
    expected = np.concatenate([model.encode_document(texts[at : at + 8]) for at in range(0, 1500, 8)])  # the old way
    for vectors in (
        evenspan.encode_documents(model, texts, progress=False),
        np.concatenate(list(evenspan.encode_documents(model, iter(texts), progress=False))),
        model.encode_document(texts).astype(np.float32),
        model.encode_document(texts, convert_to_tensor=True).float().cpu().numpy(),
    ):
        assert np.linalg.norm(vectors - expected.astype(np.float32), axis=1).max() < 0.02
