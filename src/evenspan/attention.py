"""The attention function that calibrated layers run, and how layers get it.

A calibrated layer calls the model's own attention for all rows, then computes the pooled rows again and writes them
over. Which batch is calibrated, and how, travels with the call as the keyword `calibrated_pass`: there is no global
state, and a call without it is the plain model.
"""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AttentionInterface

from evenspan.baskets import Baskets
from evenspan.calibration import Calibration
from evenspan.redistribute import basket_log_masses, redistribute, spread

# transformers treats names that contain "sdpa", "flash" or "flex" specially; this one does not.
_NAME = "evenspan_calibrated"
_PLAIN_CONFIG = "_evenspan_plain_config"

# How far a plain row computed here may be from the model's own before its attention counts as unknown.
_TOLERANCE = {torch.float32: 1e-3, torch.float64: 1e-3}
_HALF_TOLERANCE = 5e-2


@dataclass
class CalibratedPass:
    """One calibrated forward call: its setting, its geometry, and what became of it."""

    calibration: Calibration
    baskets: Baskets
    verify: bool = False
    layers_done: int = 0


def attach(modules: Iterable[nn.Module]) -> None:
    """Make these attention modules calibrate whatever call carries a `CalibratedPass`."""
    register()
    for module in modules:
        # Only these modules see our name. The model's config keeps its own, so masks are built as ever.
        plain: Any = module.config
        config = copy.copy(plain)
        config._attn_implementation_internal = _NAME
        setattr(module, _PLAIN_CONFIG, plain)
        module.config = config


def detach(model: nn.Module) -> list[nn.Module]:
    """Give all attention modules of a model their own config back; returns those that had been attached."""
    attached = [module for module in model.modules() if _PLAIN_CONFIG in module.__dict__]
    for module in attached:
        module.config = module.__dict__.pop(_PLAIN_CONFIG)
    return attached


def register() -> None:
    """Tell transformers about our attention function: needed once in every process that runs a calibrated model."""
    AttentionInterface.register(_NAME, calibrated_attention)


def calibrated_attention(
    module: nn.Module,
    query: Tensor,  # (batch, heads, queries, head_dim)
    key: Tensor,  # (batch, key_value_heads, keys, head_dim)
    value: Tensor,
    attention_mask: Tensor | None,
    calibrated_pass: CalibratedPass | None = None,
    **kwargs: Any,
) -> tuple[Tensor, Tensor | None]:
    """The model's own attention, with the pooled rows replaced in a calibrated pass."""
    output, weights = _plain_attention(module, query, key, value, attention_mask, **kwargs)
    if calibrated_pass is None:
        return output, weights
    _refuse_unknown_scores(key, calibrated_pass.baskets, kwargs)
    baskets = calibrated_pass.baskets
    scaling = kwargs.get("scaling")
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    with torch.autocast(query.device.type, enabled=False):  # float32 means float32
        scores = _pooled_scores(query, key, baskets, scale, kwargs.get("softcap"))
        if calibrated_pass.verify and not module.training:  # dropout changes the model's own row
            _verify(module, output, scores, value, baskets)
        row_weights = redistribute(scores, baskets, calibrated_pass.calibration)
        rows = _weighted_values(row_weights, value, baskets)
    calibrated_pass.layers_done += 1
    if weights is not None:
        weights = _replace_weights(weights, row_weights, baskets)
    return _replace_rows(output, rows, baskets), weights


class _PlainView:
    """An attention module as it was: FlashAttention reads its implementation from the config of the module."""

    def __init__(self, module: nn.Module) -> None:
        self._module = module
        self.config = getattr(module, _PLAIN_CONFIG)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, name)


def _plain_attention(module: nn.Module, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor | None]:
    name = getattr(module, _PLAIN_CONFIG)._attn_implementation
    modeling: Any = sys.modules[type(module).__module__]  # a model may bring attention functions of its own
    plain: Callable[..., tuple[Tensor, Tensor | None]] = modeling.ALL_ATTENTION_FUNCTIONS.get_interface(
        name, modeling.eager_attention_forward
    )
    view: Any = _PlainView(module) if name not in ("sdpa", "eager") else module
    return plain(view, *args, **kwargs)


def _pooled_scores(query: Tensor, key: Tensor, baskets: Baskets, scale: float, softcap: float | None) -> Tensor:
    """Scores of all keys under the pooling token of their own sequence, in float32.  # (heads, keys of the batch)"""
    batch, heads, columns, size = query.shape
    groups = key.shape[1]
    pooled = query.transpose(1, 2).reshape(-1, heads, size)[baskets.pooled].float() * scale  # (rows, heads, head_dim)
    if baskets.packed:
        keys = key.float().view(groups, columns, size).transpose(0, 1)  # (keys, groups, head_dim)
        per_key = pooled.view(-1, groups, heads // groups, size)[baskets.row_of_key]
        scores = torch.einsum("kghd,kgd->ghk", per_key, keys).reshape(heads, columns)
    else:
        scores = pooled.view(batch, groups, heads // groups, size) @ key.float().transpose(-1, -2)
        scores = scores.reshape(batch, heads, columns).transpose(0, 1).reshape(heads, batch * columns)
    return scores if softcap is None else torch.tanh(scores / softcap) * softcap


def _weighted_values(weights: Tensor, value: Tensor, baskets: Baskets) -> Tensor:
    """The pooled rows' attention outputs, in float32.  # (rows, heads, head_dim)"""
    batch, groups, columns, size = value.shape
    heads = weights.shape[0]
    if baskets.packed:
        values = value.float().view(groups, columns, size)
        each = torch.einsum("ghk,gkd->kghd", weights.view(groups, heads // groups, columns), values)
        rows = torch.zeros(baskets.pooled.shape[0], heads, size, device=value.device)
        return rows.index_add(0, baskets.row_of_key, each.reshape(columns, heads, size))
    per_row = weights.view(heads, batch, columns).transpose(0, 1).reshape(batch, groups, heads // groups, columns)
    return (per_row @ value.float()).reshape(batch, heads, size)


def _replace_rows(output: Tensor, rows: Tensor, baskets: Baskets) -> Tensor:
    """Write the rows of active sequences over `output`; the others keep theirs, bit for bit."""
    flat = output.reshape(-1, *output.shape[2:])  # (batch * queries, heads, head_dim)
    # A packed text without tokens has another text's position, where that text's row must stand.
    owner = baskets.row_of_key[baskets.pooled]
    replaced = baskets.active[owner] & (baskets.pooled == baskets.pooled[owner])
    chosen = torch.where(replaced.view(-1, 1, 1), rows[owner].to(output.dtype), flat[baskets.pooled])
    if torch.is_grad_enabled() and output.requires_grad:
        flat = flat.index_copy(0, baskets.pooled, chosen)  # autograd may still need the plain output
    else:
        flat.index_copy_(0, baskets.pooled, chosen)
    return flat.view(output.shape)


def _replace_weights(weights: Tensor, row_weights: Tensor, baskets: Baskets) -> Tensor:
    """The same for the attention weights that eager attention returns.  # (batch, heads, queries, keys)"""
    batch, heads, queries, keys = weights.shape
    flat = weights.transpose(1, 2).reshape(batch * queries, heads, keys)
    rows = row_weights.view(heads, batch, keys).transpose(0, 1).to(weights.dtype)
    chosen = torch.where(baskets.active.view(-1, 1, 1), rows, flat[baskets.pooled])
    return flat.index_copy(0, baskets.pooled, chosen).view(batch, queries, heads, keys).transpose(1, 2)


def _refuse_unknown_scores(key: Tensor, baskets: Baskets, kwargs: dict[str, Any]) -> None:
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
    if keys != baskets.row_of_key.shape[0]:
        raise RuntimeError(
            f"A calibrated call has {baskets.row_of_key.shape[0]} tokens but {keys} keys: encode whole passages, "
            "without a key/value cache from earlier calls."
        )


def _verify(module: nn.Module, output: Tensor, scores: Tensor, value: Tensor, baskets: Baskets) -> None:
    """Compare the plain row as computed here with the model's own, so that an attention with something in it that is
    not known here (a bias, a window, a temperature) is refused instead of calibrated wrongly.
    """
    log_masses = basket_log_masses(scores, baskets)
    plain = _weighted_values(spread(scores, log_masses, torch.softmax(log_masses, dim=-1), baskets), value, baskets)
    expected = output.reshape(-1, *output.shape[2:])[baskets.pooled].float()
    if not baskets.active.any():
        return
    off = (plain - expected)[baskets.active].norm() / expected[baskets.active].norm().clamp(min=1e-12)
    if not off <= _TOLERANCE.get(output.dtype, _HALF_TOLERANCE):
        raise RuntimeError(
            f"{type(module).__name__} computes its attention in a way that evenspan does not know: its pooled row is "
            f"off by {off:.1%} from softmax(q·k)·v. This model cannot be calibrated; use it plain "
            "(evenspan.restore(model))."
        )
