"""One calibrated call of a transformers model: build its pass, run it, and make sure that it took effect."""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Mapping
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from evenspan.calibration import Calibration
from evenspan.core.attention import CalibratedPass, Recorder
from evenspan.core.baskets import Baskets, PoolingToken
from evenspan.core.usage import call_of

Output = TypeVar("Output")
_PLAIN_FORWARD = "evenspan_plain_forward"


class CalibratedCalls:
    """Runs forward calls of one model with one calibration.

    The first calls are verified against the model's own attention (see `verifying`); every call is checked to
    have reached all its layers, so that a model that drops the keyword cannot turn calibration into a silent no-op.
    """

    def __init__(
        self,
        calibration: Calibration,
        pooling: PoolingToken,
        layers: Collection[int],
        *,
        closing_token: bool | None = None,  # whether texts end with a special token: for mean pooling only
    ) -> None:
        self.calibration = calibration
        self.pooling = pooling
        self.closing_token = closing_token
        # Baskets in which the tokens that a mean-pooled model leaves alone stand alone.
        self.baskets_for: PoolingToken = pooling if pooling != "mean" else "last" if closing_token else "cls"
        self.layers = frozenset(layers)
        self._verified = False

    def run(
        self,
        forward: Callable[..., Output],
        inputs: Mapping[str, Any],
        *args: Any,
        pooled: Tensor | None = None,
        pooled_only: bool = False,
        recorder: Recorder | None = None,
        **kwargs: Any,
    ) -> Output:
        """Call `forward(*args, **kwargs)` on these model inputs; strength 0 is the plain call, bit for bit, and so is
        a batch in which no sequence fills a basket.

        `pooled` says where each sequence's pooling token stands if it is not simply the first or last.  # (rows,)
        `pooled_only` allows the last layer to leave out all rows but the pooled ones. A `recorder` is told of every layer
        that is attached, whether it is calibrated or not.
        """
        is_plain = self.calibration.strength == 0.0 or self._too_short(inputs)
        if is_plain and recorder is None:
            return forward(*args, **kwargs)
        baskets = functools.partial(baskets_of, inputs, self.baskets_for, self.calibration, pooled)
        layers: frozenset[int] = frozenset() if is_plain else self.layers
        verify = not self._verified and not is_plain and not torch.compiler.is_compiling()
        calibrated_pass = CalibratedPass(
            self.calibration, layers, baskets, verify, pooled_only, recorder, self.pooling == "mean"
        )
        output = forward(*args, calibrated_pass=calibrated_pass, **kwargs)
        _check_reach(calibrated_pass.layers_done, len(layers))
        if verify and bool(calibrated_pass.baskets.active.any()):
            self._verified = True
        return output

    def _too_short(self, inputs: Mapping[str, Any]) -> bool:
        longest = int(inputs["max_length_q"]) if inputs.get("cu_seq_lens_q") is not None else _shape(inputs)[1]
        return longest - (1 if self.baskets_for == "cls" else 2) < self.calibration.fewest_tokens


def _check_reach(done: int, layers: int) -> None:
    if done < layers:
        raise RuntimeError(
            f"Calibration reached {done} of {layers} attention layers: this model does not pass keyword arguments down "
            "to its attention, so it cannot be calibrated, or its layers were replaced, or restored as part of another "
            "model. Call evenspan.calibrate(model) again, or use it plain (evenspan.restore(model))."
        )
    if done > layers:
        raise RuntimeError(
            f"Calibration ran {done} times in {layers} attention layers: this model computes more than one attention "
            "in a layer, so it cannot be calibrated. Use it plain (evenspan.restore(model))."
        )


def calibrated_forward(model: nn.Module, calls: CalibratedCalls) -> Callable[..., Any]:
    """A forward by which all calls of a transformers model go through `calls`, and not through those of a block around it."""
    plain = plain_forward(model)

    @functools.wraps(plain)
    def forward(*args: Any, **kwargs: Any) -> Any:
        named = dict(zip(("input_ids", "attention_mask"), args, strict=False))
        with call_of(model):
            return calls.run(plain, {**named, **kwargs}, *args, **kwargs)

    setattr(forward, _PLAIN_FORWARD, plain)
    return forward


def is_calibrated_by_itself(model: nn.Module) -> bool:
    """Whether a transformers model has a `calibrated_forward` now."""
    return hasattr(model.forward, _PLAIN_FORWARD)


def plain_forward(model: nn.Module) -> Callable[..., Any]:
    """The forward of a transformers model as it is outside of such blocks."""
    forward: Callable[..., Any] = getattr(model.forward, _PLAIN_FORWARD, model.forward)
    return forward


def baskets_of(
    inputs: Mapping[str, Any], pooling: PoolingToken, calibration: Calibration, pooled: Tensor | None = None
) -> Baskets:
    """The geometry of a batch from the inputs of its model, padded or packed."""
    size, even = calibration.basket_size, calibration.partition == "even"
    cumulative: Tensor | None = inputs.get("cu_seq_lens_q")
    if cumulative is not None:
        tokens = _shape(inputs)[1]
        longest = int(inputs["max_length_q"])
        return Baskets.from_lengths(cumulative.flatten(), tokens, longest, pooling, size, pooled, even=even)
    mask: Tensor | None = inputs.get("attention_mask")
    if mask is None:
        mask = torch.ones(_shape(inputs), dtype=torch.bool, device=_tokens(inputs).device)
    elif mask.ndim != 2:
        raise ValueError(
            f"attention_mask has shape {tuple(mask.shape)}: calibration needs the (batch, tokens) mask that a "
            "tokenizer returns."
        )
    return Baskets.from_mask(mask, pooling, size, pooled, even=even)


def _tokens(inputs: Mapping[str, Any]) -> Tensor:
    for name in ("input_ids", "inputs_embeds"):
        if inputs.get(name) is not None:
            tokens: Tensor = inputs[name]
            return tokens
    raise ValueError("A calibrated call needs input_ids or inputs_embeds as keyword arguments.")


def _shape(inputs: Mapping[str, Any]) -> tuple[int, int]:
    rows, columns = _tokens(inputs).shape[:2]
    return rows, columns
