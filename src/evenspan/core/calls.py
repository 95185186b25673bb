"""One calibrated call of a transformers model: build its pass, run it, and make sure that it took effect."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from evenspan.calibration import Calibration
from evenspan.core.attention import CalibratedPass, attach, detach, tolerance
from evenspan.core.baskets import Baskets, PoolingToken
from evenspan.core.last_layer import attach_pooled, detach_pooled

Output = TypeVar("Output")


class CalibratedCalls:
    """Runs forward calls of one model with one calibration.

    The first calls are verified against the model's own attention (see `attention._verify`); every call is checked to
    have reached all its layers, so that a model that drops the keyword cannot turn calibration into a silent no-op.
    """

    def __init__(self, calibration: Calibration, pooling: PoolingToken, layers: int) -> None:
        self.calibration = calibration
        self.pooling = pooling
        self.layers = layers
        self._verified = False

    def run(
        self,
        forward: Callable[..., Output],
        inputs: Mapping[str, Any],
        *args: Any,
        pooled: Tensor | None = None,
        pooled_only: bool = False,
        **kwargs: Any,
    ) -> Output:
        """Call `forward(*args, **kwargs)` on these model inputs; strength 0 is the plain call, bit for bit, and so is
        a batch in which no sequence fills a basket.

        `pooled` says where each sequence's pooling token stands if it is not simply the first or last.  # (rows,)
        `pooled_only` allows the last layer to leave out all rows but the pooled ones.
        """
        if self.calibration.strength == 0.0 or self._too_short(inputs):
            return forward(*args, **kwargs)
        baskets = functools.partial(baskets_of, inputs, self.pooling, self.calibration.basket_size, pooled)
        verify = not self._verified and not torch.compiler.is_compiling()
        calibrated_pass = CalibratedPass(self.calibration, baskets, verify, pooled_only)
        output = forward(*args, calibrated_pass=calibrated_pass, **kwargs)
        self._check_reach(calibrated_pass.layers_done)
        if verify and bool(calibrated_pass.baskets.active.any()):
            self._verified = True
        return output

    def _too_short(self, inputs: Mapping[str, Any]) -> bool:
        longest = int(inputs["max_length_q"]) if inputs.get("cu_seq_lens_q") is not None else _shape(inputs)[1]
        return longest - (1 if self.pooling == "cls" else 2) < self.calibration.basket_size

    def _check_reach(self, done: int) -> None:
        if done < self.layers:
            raise RuntimeError(
                f"Calibration reached {done} of {self.layers} attention layers: this model does not hand keyword "
                "arguments down to its attention, so it cannot be calibrated. Use it plain (evenspan.restore(model))."
            )
        if done > self.layers:
            raise RuntimeError(
                f"Calibration ran {done} times in {self.layers} attention layers: this model computes more than one "
                "attention in a layer, so it cannot be calibrated. Use it plain (evenspan.restore(model))."
            )


def baskets_of(inputs: Mapping[str, Any], pooling: PoolingToken, size: int, pooled: Tensor | None = None) -> Baskets:
    """The geometry of a batch from the inputs of its model, padded or packed."""
    cumulative: Tensor | None = inputs.get("cu_seq_lens_q")
    if cumulative is not None:
        tokens = _shape(inputs)[1]
        longest = int(inputs["max_length_q"])
        return Baskets.from_lengths(cumulative.flatten(), tokens, longest, pooling, size, pooled)
    mask: Tensor | None = inputs.get("attention_mask")
    if mask is None:
        mask = torch.ones(_shape(inputs), dtype=torch.bool, device=_tokens(inputs).device)
    elif mask.ndim != 2:
        raise ValueError(
            f"attention_mask has shape {tuple(mask.shape)}: calibration needs the (batch, tokens) mask that a "
            "tokenizer returns."
        )
    return Baskets.from_mask(mask, pooling, size, pooled)


# Models that have passed a trial, by the token that is pooled and the attention that ran.
_tried: WeakKeyDictionary[nn.Module, set[tuple[PoolingToken, str]]] = WeakKeyDictionary()


def try_out(model: nn.Module, modules: Sequence[nn.Module], pooling: PoolingToken) -> None:
    """Calibrate a few made-up tokens: a model that cannot be calibrated is refused before it is changed.

    A model that cannot even run them plain, because it is not where it will run yet, is verified on its first batch.

    Raises:
        ValueError: saying what is in the way.
    """
    inner: Any = model
    trial = (pooling, str(inner.config._attn_implementation))
    if trial in _tried.get(model, ()) or model.training:
        return
    attached = detach(model)
    try:
        inputs = _made_up_tokens(inner)
        with torch.no_grad():
            try:
                inner.forward(**inputs)
            except Exception:
                return
            attach(modules)
            CalibratedCalls(Calibration(basket_size=2), pooling, len(modules)).run(inner.forward, inputs, **inputs)
    except RuntimeError as error:
        raise ValueError(f"{type(model).__name__} cannot be calibrated. {error}") from error
    finally:
        detach(model)
        attach(attached)
    _tried.setdefault(model, set()).add(trial)


# Layers that were tried, and whether they gave the same rows.
_seen_working: WeakKeyDictionary[nn.Module, dict[tuple[PoolingToken, str], bool]] = WeakKeyDictionary()


def pooled_layer_works(model: nn.Module, attention: nn.Module, layer: nn.Module, pooling: PoolingToken) -> bool:
    """Whether the last layer, run for the pooled rows alone, gives a few made-up tokens the rows that it gives in full."""
    if model.training:
        return False
    inner: Any = model
    trial = (pooling, str(inner.config._attn_implementation))
    known = _seen_working.setdefault(layer, {})
    if trial in known:
        return known[trial]
    calls = CalibratedCalls(Calibration(basket_size=2), pooling, 1)
    attached, was_pooled = detach(model), hasattr(type(layer), "plain_class")
    attach([attention])
    attach_pooled(layer)
    try:
        inputs: dict[str, Any] = _made_up_tokens(inner)
        with torch.no_grad():
            full, rows = (calls.run(inner.forward, inputs, pooled_only=only, **inputs)[0] for only in (False, True))
    except Exception:
        return False  # where the model runs later, its layer is run in full
    finally:
        detach(model)
        attach(attached)
        if not was_pooled:
            detach_pooled([layer])
    place = 0 if pooling == "cls" else -1
    scale = full[:, place].abs().max().clamp(min=1e-12)
    left_out = not torch.equal(full, rows)
    known[trial] = left_out and bool((full[:, place] - rows[:, place]).abs().max() <= tolerance(full.dtype) * scale)
    return known[trial]


def _made_up_tokens(model: Any) -> dict[str, Any]:
    tokens = torch.arange(1, 9, device=model.device).unsqueeze(0)
    return {"input_ids": tokens, "attention_mask": torch.ones_like(tokens)}


def _tokens(inputs: Mapping[str, Any]) -> Tensor:
    for name in ("input_ids", "inputs_embeds"):
        if inputs.get(name) is not None:
            tokens: Tensor = inputs[name]
            return tokens
    raise ValueError("A calibrated call needs input_ids or inputs_embeds as keyword arguments.")


def _shape(inputs: Mapping[str, Any]) -> tuple[int, int]:
    rows, columns = _tokens(inputs).shape[:2]
    return rows, columns
