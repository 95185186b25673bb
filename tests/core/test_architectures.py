"""Every supported architecture, against eager attention with full matrices and the slow reference.

A new architecture is one row in `tiny.ARCHITECTURES`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from helpers import tiny
from helpers.reference import calibrated_row, equalised_rows
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS

import evenspan
from evenspan import Calibration

SETTINGS = [
    Calibration("soft", 1.0, "all", 16),
    Calibration("soft", 0.6, "half", 12, partition="even"),
    Calibration("uniform", 0.5, "half", 32),
    Calibration("hard", 0.7, "last", 8, partition="even"),
]
EXPLICIT = {"variant", "strength", "basket_size", "self_mass", "first_token", "partition"}


def reference_vectors(
    model: Any, features: dict[str, Any], pooling: str, setting: Calibration, full: Any
) -> np.ndarray:
    """The pooled hidden states of a model whose attention is computed in the open, with the rows edited one by one."""
    valid = features["attention_mask"].bool()
    chosen = setting.choose_layers(full, total=4)
    columns = [row.nonzero().flatten().tolist() for row in valid]
    pooled = [places[0] if pooling == "cls" else places[-1] for places in columns]
    calls: list[int] = []

    def attention(module, query, key, value, attention_mask, scaling=None, softcap=None, **kwargs):
        layer = len(calls)
        calls.append(layer)
        repeat = query.shape[1] // key.shape[1]
        key, value = (tensor.double().repeat_interleave(repeat, dim=1) for tensor in (key, value))
        scores = query.double() @ key.transpose(-1, -2) * (query.shape[-1] ** -0.5 if scaling is None else scaling)
        if softcap is not None:
            scores = softcap * torch.tanh(scores / softcap)
        weights = torch.softmax(scores + attention_mask.double(), dim=-1)
        if layer in chosen and pooling == "mean":
            for row, places in enumerate(columns):
                here = slice(places[0], places[-1] + 1)
                plain = weights[row, :, here, here].numpy()
                edited = equalised_rows(plain, setting.strength, setting.basket_size, setting.partition)
                weights[row, :, here, here] = torch.from_numpy(edited)
        elif layer in chosen:
            arguments = {name: getattr(setting, name) for name in EXPLICIT}
            for row, places in enumerate(columns):
                inside = {place: index for index, place in enumerate(places)}
                isolated = inside[places[0]] if pooling == "lasttoken" else None
                for head in range(weights.shape[1]):
                    plain = weights[row, head, pooled[row], places].numpy()
                    edited = calibrated_row(plain, inside[pooled[row]], isolated, **arguments)
                    weights[row, head, pooled[row], places] = torch.from_numpy(edited)
        return (weights @ value).transpose(1, 2).contiguous().to(query.dtype), None

    AttentionInterface.register("tests_reference", attention)
    AttentionMaskInterface.register("tests_reference", ALL_MASK_ATTENTION_FUNCTIONS["eager"])
    before = model.config._attn_implementation
    model.set_attn_implementation("tests_reference")
    try:
        with torch.no_grad():
            inputs = {name: features[name] for name in ("input_ids", "attention_mask")}
            states = model(**inputs).last_hidden_state
    finally:
        model.set_attn_implementation(before)
    vectors = states[range(len(pooled)), pooled]
    if pooling == "mean":
        vectors = torch.stack([of_row[places].mean(dim=0) for of_row, places in zip(states, columns, strict=True)])
    return torch.nn.functional.normalize(vectors, dim=-1).numpy()


@pytest.mark.parametrize("setting", SETTINGS, ids=str)
@pytest.mark.parametrize("architecture", tiny.ARCHITECTURES, ids=str)
def test_agrees_with_eager_reference(architecture, setting, tmp_path) -> None:
    if not architecture.takes(setting):
        pytest.skip("not for mean pooling")
    model = tiny.sentence_transformer(architecture, tmp_path)
    texts = tiny.TEXTS
    plain = model.encode_document(texts)
    features = model.preprocess(texts)
    expected = reference_vectors(model[0].auto_model, features, architecture.pooling, setting, architecture.full)

    evenspan.calibrate(model, setting)
    found = evenspan.inspect_model(model, setting)
    assert found.full_attention_layers == architecture.full
    vectors = model.encode_document(texts, batch_size=len(texts))
    np.testing.assert_allclose(vectors, expected, atol=2e-5, rtol=0)

    lengths = features["attention_mask"].sum(dim=1) - (1 if architecture.pooling == "cls" else 2)
    least = setting.basket_size * (1.0 if setting.partition == "paper" else 1.5)
    long, short = (lengths > least).numpy(), (lengths < least).numpy()
    assert long.any()
    assert short.any()
    assert (np.abs(vectors - plain).max(axis=1)[long] > 1e-4).all(), "calibration must change long texts"
    # In company of long texts a short one passes the last layer as they do, which rounds otherwise; alone it is plain.
    np.testing.assert_allclose(vectors[short], plain[short], atol=2e-6, rtol=0)
    alone = [one for one, is_short in zip(texts, short, strict=True) if is_short]
    vectors_alone = model.encode_document(alone)

    evenspan.restore(model)
    np.testing.assert_array_equal(vectors_alone, model.encode_document(alone))
    np.testing.assert_array_equal(model.encode_document(texts), plain)


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("name", ["xlm-roberta-cls", "qwen3-lasttoken", "xlm-roberta-mean"])
def test_attention_implementations_and_dtypes(name, dtype, attention, tmp_path) -> None:
    """The vectors do not depend on the attention of the other rows beyond the dtype's own noise."""
    model = tiny.sentence_transformer(name, tmp_path)
    with evenspan.calibrated(model, Calibration(strength=1.0, layers="all", basket_size=16)):
        expected = model.encode_document(tiny.TEXTS)
    model.to(dtype)
    model[0].auto_model.set_attn_implementation(attention)
    with evenspan.calibrated(model, Calibration(strength=1.0, layers="all", basket_size=16)):
        vectors = model.encode_document(tiny.TEXTS, convert_to_tensor=True).float().numpy()
    similarity = (vectors * expected).sum(axis=1)
    assert similarity.min() > (0.9999 if dtype == torch.float32 else 0.98)


def test_attention_implementation_changed_after_calibration(cls_model) -> None:
    evenspan.calibrate(cls_model, Calibration(basket_size=16))
    fused = cls_model.encode_document(tiny.TEXTS)
    cls_model[0].auto_model.set_attn_implementation("eager")
    np.testing.assert_allclose(cls_model.encode_document(tiny.TEXTS), fused, atol=2e-6)
    assert evenspan.inspect_model(cls_model).attention == "eager"
