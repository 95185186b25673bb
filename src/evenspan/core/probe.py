"""See on a few made-up tokens that a model can be calibrated, before it is."""

from __future__ import annotations

from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import nn

from evenspan.calibration import Calibration
from evenspan.core.baskets import PoolingToken
from evenspan.core.calls import CalibratedCalls, plain_forward
from evenspan.core.install import attached
from evenspan.core.last_layer import looked_into
from evenspan.core.layers import AttentionLayers
from evenspan.core.verifying import tolerance
from evenspan.errors import UnsupportedModelError

_FEW_TOKENS, _SMALL_BASKETS = 8, 2
_ON_GPU_TOKENS = (
    296  # two baskets of the usual size: the kernels that are compiled for them are those of the first batch
)
# How models and last layers have fared, by the token that is pooled and the attention that ran.
_trials: WeakKeyDictionary[nn.Module, dict[tuple[PoolingToken, str], bool]] = WeakKeyDictionary()


def try_out(model: nn.Module, layers: AttentionLayers, pooling: PoolingToken) -> None:
    """Calibrate the made-up tokens in all layers that can be.

    A model that cannot even run them plain, because it is not where it will run yet, is verified on its first batch.

    Raises:
        UnsupportedModelError: saying what is in the way.
    """
    known, trial = _trials.setdefault(model, {}), _trial(model, pooling)
    if model.training or trial in known:
        return
    forward, inputs = plain_forward(model), _made_up_tokens(model)
    with torch.no_grad():
        try:
            forward(**inputs)
        except Exception:
            return
        try:
            with attached(layers.calibratable):
                calls = CalibratedCalls(_calibration(inputs), pooling, layers.full, closing_token=True)
                calls.run(forward, inputs, **inputs)
        except RuntimeError as error:
            raise UnsupportedModelError(f"{type(model).__name__} cannot be calibrated. {error}") from error
    known[trial] = True


def last_layer_works(model: nn.Module, layers: AttentionLayers, last_layer: nn.Module, pooling: PoolingToken) -> bool:
    """Whether a calibrated last layer, run for the pooled rows alone, gives the rows that it gives in full."""
    known, trial = _trials.setdefault(last_layer, {}), _trial(model, pooling)
    if model.training or trial in known:
        return known.get(trial, False)
    forward, number, inputs = plain_forward(model), len(layers.modules) - 1, _made_up_tokens(model)
    calls = CalibratedCalls(_calibration(inputs), pooling, [number])
    try:
        with torch.no_grad(), attached({number: layers.modules[number]}, last_layer):
            full, rows = (calls.run(forward, inputs, pooled_only=only, **inputs)[0] for only in (False, True))
    except Exception:
        return False  # where the model runs later, its layer is run in full
    place = 0 if pooling == "cls" else -1
    scale = full[:, place].abs().max().clamp(min=1e-12)
    left_out = not torch.equal(full, rows)
    works = left_out and bool((full[:, place] - rows[:, place]).abs().max() <= tolerance(full.dtype) * scale)
    if works or not looked_into(last_layer.modules()):  # a hook may be in the way only today
        known[trial] = works
    return works


def _trial(model: Any, pooling: PoolingToken) -> tuple[PoolingToken, str]:
    return pooling, str(model.config._attn_implementation)


def _made_up_tokens(model: Any) -> dict[str, Any]:
    many = model.device.type == "cuda" and getattr(model.config, "max_position_embeddings", 0) > _ON_GPU_TOKENS
    tokens = torch.arange(_ON_GPU_TOKENS if many else _FEW_TOKENS, device=model.device)
    tokens = (tokens % _FEW_TOKENS + 1).unsqueeze(0)
    return {"input_ids": tokens, "attention_mask": torch.ones_like(tokens)}


def _calibration(inputs: dict[str, Any]) -> Calibration:
    """One that these tokens are long enough for."""
    return Calibration() if inputs["input_ids"].shape[1] == _ON_GPU_TOKENS else Calibration(basket_size=_SMALL_BASKETS)
