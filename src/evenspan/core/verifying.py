"""See that a model's attention is the one that is known here: softmax(q·k)·v over all tokens of a passage."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from evenspan.core.baskets import Baskets
from evenspan.core.rows import plain_rows, pooled_query, pooled_scores
from evenspan.core.triton import fuses


def tolerance(dtype: torch.dtype) -> float:
    """How far a row computed here may be, relatively, from the model's own before its attention counts as unknown."""
    return 1e-3 if dtype in (torch.float32, torch.float64) else 5e-2


def refuse_unknown_scores(key: Tensor, baskets: Baskets, kwargs: dict[str, Any]) -> None:
    """Raise if an attention call has something in it that the pooled rows are computed without."""
    for name in ("position_bias", "s_aux"):
        if kwargs.get(name) is not None:
            raise RuntimeError(f"This model passes {name!r} to its attention, which evenspan cannot calibrate.")
    window = kwargs.get("sliding_window")
    if window is not None and baskets.longest > window:
        raise RuntimeError(
            f"A passage of {baskets.longest} tokens is longer than this model's window of {window}: calibration needs a "
            f"pooling token that sees the whole passage. Set model.max_seq_length to {window} or less."
        )
    keys = key.shape[0] * key.shape[2]
    if keys != baskets.keys:
        raise RuntimeError(
            f"A calibrated call has {baskets.keys} tokens but {keys} keys: encode whole passages, "
            "without a key/value cache from earlier calls."
        )


def verify_rows(
    module: nn.Module, output: Tensor, scores: Tensor, value: Tensor, baskets: Baskets, places: Tensor | None = None
) -> None:
    """Compare the plain row as computed here with the model's own, so that an attention with something in it that is
    not known here (a bias, a window, a temperature) is refused instead of calibrated wrongly. The rows are those of the
    pooling tokens, or at these flat positions.  # (rows,)
    """
    places = baskets.pooled if places is None else places
    plain = plain_rows(scores, value, baskets)
    expected = output.reshape(-1, *output.shape[2:])[places].float()
    if not baskets.active.any():
        return
    off = (plain - expected)[baskets.active].norm() / expected[baskets.active].norm().clamp(min=1e-12)
    if not off <= tolerance(output.dtype):
        raise RuntimeError(
            f"{type(module).__name__} computes its attention in a way that evenspan does not know: its pooled row is "
            f"off by {off:.1%} from softmax(q·k)·v. This model cannot be calibrated; use it plain "
            "(evenspan.restore(model))."
        )


def verify_every_row(
    module: nn.Module,
    output: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    baskets: Baskets,
    scale: float,
    softcap: float | None,
) -> None:
    """`verify_rows` at both ends of a sequence, near its beginning and in its middle."""
    if fuses(query, key, value) and bool((baskets.spans[:, 2] < 0).any()):
        raise ValueError("This attention_mask has gaps between tokens: on a GPU mean pooling needs texts without any.")
    middle = baskets.slots.shape[1] // 2
    in_middle = torch.where(baskets.filled[:, middle, 0], baskets.slots[:, middle, 0], baskets.pooled)
    for places in (*baskets.alone.unbind(dim=1), baskets.slots[:, 0, 0], in_middle):
        scores = pooled_scores(pooled_query(query, replace(baskets, pooled=places)), key, baskets, scale, softcap)
        verify_rows(module, output, scores, value, baskets, places)
