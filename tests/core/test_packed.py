"""Unpadded batches, as sentence-transformers packs them for FlashAttention.

The FlashAttention package needs a GPU. Everything around it is real here: sentence-transformers' flattening, its
pooling of flat batches and transformers' calling code; only the kernel is a stand-in that loops over the sequences.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
from helpers import tiny
from torch.nn.functional import scaled_dot_product_attention
from transformers import modeling_flash_attention_utils as flash

import evenspan
from evenspan import Calibration, sweeps

SETTINGS = [
    Calibration(strength=1.0, layers="all", basket_size=16),
    Calibration("uniform", layers="last", basket_size=32),
    Calibration("hard", strength=0.3, layers=(1, 3), basket_size=7),
]
CALLS: list[int] = []


def varlen(
    q,
    k,
    v,
    cu_seqlens_q,
    cu_seqlens_k,
    max_seqlen_q,
    max_seqlen_k,
    softmax_scale=None,
    causal=False,
    window_size=(-1, -1),
):
    """FlashAttention's interface for packed sequences.  # (tokens, heads, head_dim)"""
    CALLS.append(len(cu_seqlens_q) - 1)
    outputs = []
    for start, end in zip(cu_seqlens_q[:-1].tolist(), cu_seqlens_q[1:].tolist(), strict=True):
        query, key, value = (tensor[start:end].transpose(0, 1).unsqueeze(0) for tensor in (q, k, v))
        place = torch.arange(end - start)
        behind = place.unsqueeze(1) - place
        seen = torch.ones_like(behind, dtype=torch.bool) if not causal else behind >= 0
        if window_size[0] >= 0:
            seen &= (behind <= window_size[0]) & (behind >= -window_size[1])
        output = scaled_dot_product_attention(query, key, value, seen, scale=softmax_scale, enable_gqa=True)
        outputs.append(output.squeeze(0).transpose(0, 1))
    return torch.cat(outputs)


def padded(q, k, v, **kwargs):
    raise AssertionError("sentence-transformers should have packed this batch")


@pytest.fixture(params=["xlm-roberta-cls", "modernbert-cls", "qwen3-lasttoken", "llama-lasttoken", "xlm-roberta-mean"])
def models(request, tmp_path, monkeypatch):
    """The same tiny model twice: padded with SDPA, and packed with the stand-in kernel."""
    processing = flash._lazy_define_process_function(varlen)
    functions = padded, varlen, None, flash._pad_input, flash._unpad_input
    newer = hasattr(flash, "_process_with_kvcache_kwargs_fn")
    loaded = functions, ((processing, None) if newer else processing)
    monkeypatch.setattr(flash, "lazy_import_flash_attention", lambda *args, **kwargs: loaded)
    usual = tiny.sentence_transformer(request.param, tmp_path / "usual", prompts={"query": "w5 w6 "})
    packed = tiny.sentence_transformer(request.param, tmp_path / "packed", prompts={"query": "w5 w6 "})
    packed[0].auto_model.config._attn_implementation = "flash_attention_2"
    packed[0].unpad_inputs = True
    assert packed[0].can_flatten_inputs
    CALLS.clear()
    return usual, packed


def skip_what_is_not_for_a_mean(model, settings) -> None:
    if model[1].pooling_mode == "mean" and any(setting.variant != "soft" for setting in settings):
        pytest.skip("not for mean pooling")


@pytest.mark.parametrize("setting", SETTINGS, ids=str)
def test_packed_batches_are_calibrated_like_padded_ones(models, setting) -> None:
    usual, packed = models
    skip_what_is_not_for_a_mean(usual, [setting])
    texts = [text for text in tiny.TEXTS if text]
    plain = packed.encode(texts, batch_size=len(texts))
    np.testing.assert_allclose(plain, usual.encode(texts), atol=1e-5)
    for model in models:
        evenspan.calibrate(model, setting)
    vectors = packed.encode_document(texts, batch_size=len(texts))
    np.testing.assert_allclose(vectors, usual.encode_document(texts), atol=1e-5)
    assert np.abs(vectors - plain).max() > 1e-3
    np.testing.assert_array_equal(packed.encode_query(texts), evenspan.restore(packed).encode_query(texts))
    assert set(CALLS) == {len(texts)}


def test_packed_with_the_prompt_excluded_from_pooling(models) -> None:
    _, packed = models
    texts = [text for text in tiny.TEXTS if text]
    for model in models:
        model.set_pooling_include_prompt(include_prompt=False)
        evenspan.calibrate(model, SETTINGS[0])
    plain = [model.encode(texts, prompt="w5 w6 w7 ") for model in models]
    if np.abs(plain[0] - plain[1]).max() > 1e-3:
        pytest.skip("this sentence-transformers pools packed and padded batches differently")
    prompted = [model.encode_document(texts, prompt="w5 w6 w7 ") for model in models]
    np.testing.assert_allclose(*prompted, atol=1e-5)
    assert np.abs(prompted[1] - packed.encode_document(texts)).max() > 1e-3


def test_sweeps_of_packed_batches(models) -> None:
    usual, packed = models
    skip_what_is_not_for_a_mean(usual, SETTINGS)
    vectors = sweeps.encode(packed, tiny.TEXTS, SETTINGS)
    assert CALLS
    for setting, expected in sweeps.encode(usual, tiny.TEXTS, SETTINGS).items():
        np.testing.assert_allclose(vectors[setting], expected, atol=1e-5, rtol=0)
