"""One calibrated call of a transformers model: build its pass, run it, and make sure that it took effect."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import torch
from torch import Tensor

from evenspan.attention import CalibratedPass
from evenspan.baskets import Baskets, PoolingToken
from evenspan.calibration import Calibration

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
        **kwargs: Any,
    ) -> Output:
        """Call `forward(*args, **kwargs)` on these model inputs; strength 0 is the plain call, bit for bit.

        `pooled` says where each sequence's pooling token stands if it is not simply the first or last.  # (rows,)
        """
        if self.calibration.strength == 0.0:
            return forward(*args, **kwargs)
        baskets = self._baskets(inputs, pooled)
        verify = not self._verified and not torch.compiler.is_compiling()
        calibrated_pass = CalibratedPass(self.calibration, baskets, verify)
        output = forward(*args, calibrated_pass=calibrated_pass, **kwargs)
        if calibrated_pass.layers_done != self.layers:
            raise RuntimeError(
                f"Calibration reached {calibrated_pass.layers_done} of {self.layers} attention layers: this model does "
                "not hand keyword arguments down to its attention, so it cannot be calibrated. Use it plain "
                "(evenspan.restore(model))."
            )
        if verify and bool(baskets.active.any()):
            self._verified = True
        return output

    def _baskets(self, inputs: Mapping[str, Any], pooled: Tensor | None) -> Baskets:
        size = self.calibration.basket_size
        cumulative: Tensor | None = inputs.get("cu_seq_lens_q")
        if cumulative is not None:
            tokens = _shape(inputs)[1]
            longest = int(inputs["max_length_q"])
            return Baskets.from_lengths(cumulative.flatten(), tokens, longest, self.pooling, size, pooled)
        mask: Tensor | None = inputs.get("attention_mask")
        if mask is None:
            mask = torch.ones(_shape(inputs), dtype=torch.bool, device=_tokens(inputs).device)
        elif mask.ndim != 2:
            raise ValueError(
                f"attention_mask has shape {tuple(mask.shape)}: calibration needs the (batch, tokens) mask that a "
                "tokenizer returns."
            )
        return Baskets.from_mask(mask, self.pooling, size, pooled)


def _tokens(inputs: Mapping[str, Any]) -> Tensor:
    for name in ("input_ids", "inputs_embeds"):
        if inputs.get(name) is not None:
            tokens: Tensor = inputs[name]
            return tokens
    raise ValueError("A calibrated call needs input_ids or inputs_embeds as keyword arguments.")


def _shape(inputs: Mapping[str, Any]) -> tuple[int, int]:
    rows, columns = _tokens(inputs).shape[:2]
    return rows, columns
