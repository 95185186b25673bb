"""Batches without padding: the same vectors, for every architecture that allows it, with a slow kernel on the CPU.

The real kernel is tried in `core/test_gpu.py`.
"""

from __future__ import annotations

import itertools
import logging

import numpy as np
import pytest
import torch
from helpers import calls, tiny
from torch.nn.attention.varlen import varlen_attn

import evenspan
from evenspan.core import packed
from evenspan.encoding import Encoder
from evenspan.models import layouts

TEXTS = [*tiny.TEXTS, tiny.text(230), tiny.text(60)]
SETTING = evenspan.Calibration(strength=1.0, basket_size=16)


def slow_varlen(query, key, value, cu_seq_q, _, longest, __, *, scale, window_size, enable_gqa=False):
    """What torch's kernel does, text by text."""
    assert enable_gqa == (query.shape[1] != key.shape[1])
    key, value = (part.repeat_interleave(query.shape[1] // key.shape[1], dim=1) for part in (key, value))
    outputs = torch.zeros_like(query)
    bounds = cu_seq_q.tolist()
    assert longest == max(end - start for start, end in itertools.pairwise(bounds))
    for start, end in itertools.pairwise(bounds):
        own = slice(start, end)
        place = torch.arange(end - start)
        behind = place[:, None] - place[None, :]
        left, right = (2**31 if side < 0 else side for side in window_size)
        mask = (behind <= left) & (-behind <= right)
        parts = [part[own].transpose(0, 1) for part in (query, key, value)]
        attended = torch.nn.functional.scaled_dot_product_attention(*parts, attn_mask=mask, scale=scale)
        outputs[own] = attended.transpose(0, 1)
    return outputs


@pytest.fixture
def slow_kernel(monkeypatch):
    """A CPU with a kernel for texts of different lengths."""
    monkeypatch.setattr(packed, "varlen_kernel", lambda: slow_varlen)
    monkeypatch.setattr(packed, "_groups_heads", lambda: True)
    for module in (packed, layouts):
        monkeypatch.setattr(module, "runs_on", lambda _: True)


@pytest.mark.parametrize("architecture", tiny.ARCHITECTURES, ids=str)
def test_vectors_are_the_same_without_padding(architecture, tmp_path, monkeypatch, request, caplog) -> None:
    model = tiny.sentence_transformer(architecture, tmp_path)
    encoder = Encoder(model)
    with evenspan.calibrated(model, SETTING):
        padded = encoder.encode(TEXTS)
    plain = encoder.encode(TEXTS)
    request.getfixturevalue("slow_kernel")
    batches = calls.watch(monkeypatch)
    with evenspan.calibrated(model, SETTING), caplog.at_level(logging.DEBUG, logger="evenspan"):
        np.testing.assert_allclose(encoder.encode(TEXTS), padded, atol=2e-5)
    np.testing.assert_allclose(encoder.encode(TEXTS), plain, atol=2e-5)
    unpadded = ["cu_seq_lens_q" in batch for batch in batches]
    if architecture.attention == "eager":
        assert not any(unpadded)
        assert "Batches are padded: the attention is eager" in caplog.text
    else:
        assert unpadded == [False, True, True, False, True, True], (
            "each is tried in both ways once, an empty text apart"
        )
        assert "Batches are without padding" in caplog.text


def test_texts_of_one_length_need_no_mask(cls_model, monkeypatch, slow_kernel) -> None:
    texts = [tiny.text(50, seed) for seed in range(6)]
    expected = cls_model.encode_document(texts)
    batches = calls.watch(monkeypatch)
    np.testing.assert_allclose(Encoder(cls_model).encode(texts), expected, atol=2e-6)
    assert "attention_mask" not in batches[-1]
    assert batches[-1]["input_ids"].shape == (6, 52)


def test_prompts_that_are_left_out_of_pooling(cls_model, slow_kernel) -> None:
    cls_model.set_pooling_include_prompt(False)
    evenspan.calibrate(cls_model, SETTING)
    expected = [cls_model.encode_document(text, prompt="w1 w2 ") for text in TEXTS]
    np.testing.assert_allclose(Encoder(cls_model, prompt="w1 w2 ").encode(TEXTS), expected, atol=2e-5)


def test_a_model_that_differs_stays_padded(cls_model, monkeypatch, slow_kernel, caplog) -> None:
    expected = cls_model.encode_document(TEXTS)
    monkeypatch.setattr(packed, "varlen_kernel", lambda: lambda query, *_, **__: query)
    with caplog.at_level(logging.DEBUG, logger="evenspan"):
        np.testing.assert_allclose(Encoder(cls_model).encode(TEXTS), expected, atol=2e-6)
    assert "without padding vectors differ" in caplog.text


def test_what_runs_under_autocast_is_tried_again_without(cls_model, monkeypatch, slow_kernel, caplog) -> None:
    def half_only(query, *rest, **options):
        if query.dtype == torch.float32:
            raise NotImplementedError("no float32")
        return slow_varlen(query, *rest, **options)

    expected = cls_model.encode_document(TEXTS)
    monkeypatch.setattr(packed, "varlen_kernel", lambda: half_only)
    caplog.set_level(logging.DEBUG, logger="evenspan")
    with torch.autocast("cpu", torch.float16):
        Encoder(cls_model).encode(TEXTS)
    assert "Batches are without padding" in caplog.text
    caplog.clear()
    for _ in range(2):
        np.testing.assert_allclose(Encoder(cls_model).encode(TEXTS), expected, atol=2e-6)
    assert caplog.text.count("Batches are padded: without padding this model fails: no float32") == 2


@pytest.mark.parametrize("reason", ["someone looks at its layers", "the model was told to"])
def test_reasons_to_stay_padded(reason, cls_model, slow_kernel, caplog) -> None:
    if reason == "the model was told to":
        cls_model[0].unpad_inputs = False
    else:
        cls_model[0].auto_model.encoder.layer[1].register_forward_hook(lambda *_: None)
    with caplog.at_level(logging.DEBUG, logger="evenspan"):
        Encoder(cls_model).encode(TEXTS)
    assert f"Batches are padded: {reason}" in caplog.text


def test_modules_are_left_as_they_were(cls_model, slow_kernel) -> None:
    before = {name: getattr(module, "config", None) for name, module in cls_model.named_modules()}
    Encoder(cls_model).encode(TEXTS)
    assert {name: getattr(module, "config", None) for name, module in cls_model.named_modules()} == before


def test_torch_has_the_kernel_that_is_called() -> None:
    assert packed.varlen_kernel() is varlen_attn
    assert not packed.runs_on(torch.device("cpu"))


def test_float32_is_said_once_to_cost_speed(cls_model, slow_kernel, monkeypatch, caplog) -> None:
    refuse = packed._refuse

    def refuses_float32(query: torch.Tensor, *others: object) -> None:  # as on a GPU
        if query.dtype == torch.float32:
            raise NotImplementedError("not float32")
        refuse(query, *others)

    monkeypatch.setattr(packed, "_refuse", refuses_float32)
    encoder = Encoder(cls_model)
    with caplog.at_level(logging.WARNING, logger="evenspan"):
        encoder.encode(TEXTS)
        with evenspan.calibrated(cls_model, SETTING):
            encoder.encode(TEXTS)
        assert [record.message.partition(",")[0] for record in caplog.records] == ["The model is in float32"]
        caplog.clear()
        Encoder(cls_model.bfloat16()).encode(TEXTS)
        assert not caplog.records
