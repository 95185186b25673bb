"""Attaching, detaching and recording: what is changed for a while is exactly what is changed back."""

from __future__ import annotations

import copy

import pytest
import torch
from helpers import tiny

import evenspan
from evenspan import Calibration
from evenspan.core.attention import Attachment, calibrated_attention
from evenspan.core.calls import CalibratedCalls
from evenspan.core.install import attach, attached, detach, overridden
from evenspan.core.layers import AttentionLayers
from evenspan.core.probe import try_out

SETTING = Calibration(strength=1.0, basket_size=16)


@pytest.fixture(params=["xlm-roberta-cls", "modernbert-cls", "qwen3-lasttoken"])
def model(request, tmp_path):
    return tiny.sentence_transformer(request.param, tmp_path)


@pytest.fixture
def batch(model):
    features = model.preprocess([tiny.text(100), tiny.text(40)])
    return {name: features[name] for name in ("input_ids", "attention_mask")}


def layers_of(model):
    pooling = "cls" if model[1].pooling_mode == "cls" else "last"
    return AttentionLayers.of(model[0].auto_model, pooling), pooling


def configs(model) -> list[int]:
    return [id(module.config) for module in model[0].auto_model.modules() if hasattr(module, "config")]


def test_modules_stay_attached_until_all_have_detached_them(model) -> None:
    layers, _ = layers_of(model)
    before = configs(model)
    first, *others = layers.full
    mine = attach({first: layers.modules[first]})
    assert mine == [layers.modules[first]]
    with attached(layers.calibratable):
        detach(mine)
        assert all(map(Attachment.of, layers.calibratable.values())), "the block still needs it"
        mine = attach({first: layers.modules[first]})
    assert Attachment.of(layers.modules[first]) is not None
    assert not any(Attachment.of(layers.modules[index]) for index in others)
    detach(copy.deepcopy(mine))  # a copy has nothing to do with those that hold the original
    assert configs(model) != before
    detach(mine)
    assert configs(model) == before


def test_a_plain_call_may_arrive_when_its_module_was_detached(model) -> None:
    """Between looking up its attention function and calling it."""
    layers, _ = layers_of(model)
    module = layers.modules[layers.full[0]]
    states = torch.rand(3, 1, 4, 6, 8)
    with attached(layers.calibratable):
        during, _ = calibrated_attention(module, *states, None)
    after, _ = calibrated_attention(module, *states, None)
    torch.testing.assert_close(after, during, atol=0, rtol=0)


def test_overridden_forwards_nest(model) -> None:
    module = model[0]
    with overridden(module, lambda features: "outer"):
        with overridden(module, lambda features: "inner"):
            assert module({}) == "inner"
        assert module({}) == "outer"
    assert "forward" not in vars(module)


def test_a_live_model_is_tried_out_as_it_is(model, monkeypatch) -> None:
    """Nothing is detached from a model that may be encoding at this moment."""
    evenspan.calibrate(model, SETTING)
    layers, pooling = layers_of(model)
    monkeypatch.setattr("evenspan.core.probe._trials", {})
    seen = []
    layers.modules[0].register_forward_hook(
        lambda *_: seen.append(all(map(Attachment.of, layers.calibratable.values())))
    )
    try_out(model[0].auto_model, layers, pooling)
    assert seen == [True, True]
    assert all(map(Attachment.of, layers.calibratable.values()))


@torch.no_grad()
def test_a_recorder_sees_every_full_layer_and_changes_nothing(model, batch) -> None:
    layers, pooling = layers_of(model)
    auto_model = model[0].auto_model
    plain = auto_model(**batch).last_hidden_state
    calibrated_at = layers.full[-1]
    masses: dict[float, dict[int, torch.Tensor]] = {}
    outputs = {}
    for strength in (0.0, 1.0):
        calls = CalibratedCalls(Calibration(strength=strength, basket_size=16), pooling, [calibrated_at])
        seen: dict[int, torch.Tensor] = {}

        def record(layer, of_layer, baskets, seen=seen) -> None:
            seen[layer] = of_layer
            torch.testing.assert_close(of_layer.sum(dim=-1), torch.ones(of_layer.shape[:2]))
            assert (of_layer[:, ~baskets.present] == 0).all()

        with attached(layers.calibratable):
            output = calls.run(auto_model.forward, batch, **batch).last_hidden_state
            recorded = calls.run(auto_model.forward, batch, recorder=record, **batch).last_hidden_state
        assert torch.equal(recorded, output)
        assert sorted(seen) == list(layers.full)
        masses[strength], outputs[strength] = seen, output
    assert torch.equal(outputs[0.0], plain)
    assert not torch.equal(outputs[1.0], plain)
    for layer in layers.full:
        changed = (masses[0.0][layer] - masses[1.0][layer]).abs().max() > 1e-3
        assert changed == (layer == calibrated_at)
