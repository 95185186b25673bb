"""The attention function that attached layers run.

It calls the model's own attention for all rows; in a layer that is calibrated it then computes the pooled rows again and
writes them over. In a mean-pooled model all rows are pooled, and its own attention is not needed there. Which layers those
are, and how, travels with the call as the keyword `calibrated_pass`: there is no global state, and a call without it is the
plain model.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from evenspan.calibration import Calibration
from evenspan.core.baskets import Baskets
from evenspan.core.every_row import calibrated_every_row, every_row_masses
from evenspan.core.packed import is_packed, packed_attention
from evenspan.core.redistribute import basket_log_masses, calibrated_masses, plan_of, redistribute
from evenspan.core.rows import pooled_query, pooled_scores, replace_rows
from evenspan.core.verifying import refuse_unknown_scores, verify_every_row, verify_rows

Function = TypeVar("Function", bound=Callable[..., Any])
# Told of every attached layer: its number, the masses its pooling tokens give their baskets, and the baskets.
Recorder = Callable[[int, Tensor, Baskets], None]  # masses: (heads, rows, 2 + baskets)


@dataclass(frozen=True)
class Attachment:
    """What an attached attention module remembers: its place among the model's layers, and its own config."""

    layer: int
    config: Any
    for_good: bool = False  # by whoever calibrates, not for a trial or a look

    NAME = "_evenspan_attachment"

    @classmethod
    def of(cls, module: nn.Module) -> Attachment | None:
        """The attachment of a module, None for one that is not attached."""
        return module.__dict__.get(cls.NAME)

    @property
    def implementation(self) -> str:
        """The attention that the module runs for all rows."""
        name: str = self.config._attn_implementation
        return name


def not_compiled(function: Function) -> Function:
    """Keep compilers out of a function: they get the model's own code and no more.

    With ours in one graph with a causal model, inductor gave wrong rows on CUDA (torch 2.11), also of texts too short to be
    calibrated, unless its padding of strides (`comprehensive_padding`) was off.
    """
    disable: Callable[[Function], Function] = torch.compiler.disable
    return disable(function)


@dataclass
class CalibratedPass:
    """One calibrated forward call: its setting, its layers, its geometry, and what became of it."""

    calibration: Calibration
    layers: frozenset[int]  # those that are calibrated
    geometry: Baskets | Callable[[], Baskets]
    verify: bool = False
    pooled_only: bool = False  # whether the last layer may compute the pooled rows and no others
    recorder: Recorder | None = None
    every_row: bool = False  # of a mean-pooled model
    layers_done: int = 0

    @cached_property
    def baskets(self) -> Baskets:
        """The geometry, built in the first calibrated layer: a device is then busy with those before it."""
        return self.geometry if isinstance(self.geometry, Baskets) else self.geometry()


def calibrated_attention(
    module: nn.Module,
    query: Tensor,  # (batch, heads, queries, head_dim)
    key: Tensor,  # (batch, key_value_heads, keys, head_dim)
    value: Tensor,
    attention_mask: Tensor | None,
    calibrated_pass: CalibratedPass | None = None,
    **kwargs: Any,
) -> tuple[Tensor, Tensor | None]:
    """The model's own attention, with the pooled rows replaced where a calibrated pass says so."""
    # A plain call may arrive here when the module was detached a moment ago.
    attachment = Attachment.of(module) or Attachment(-1, module.config)
    plain = functools.partial(_plain_attention, module, attachment, query, key, value, attention_mask, **kwargs)
    if calibrated_pass is None:
        return plain()
    if attachment.layer not in calibrated_pass.layers and calibrated_pass.recorder is None:
        return plain()
    if calibrated_pass.every_row:
        return _with_every_row(module, attachment, plain, query, key, value, calibrated_pass, kwargs)
    output, weights = plain()
    return _with_pooled_rows(module, attachment.layer, output, weights, query, key, value, calibrated_pass, kwargs)


@not_compiled
def _with_pooled_rows(
    module: nn.Module,
    layer: int,
    output: Tensor,
    weights: Tensor | None,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    calibrated_pass: CalibratedPass,
    kwargs: dict[str, Any],
) -> tuple[Tensor, Tensor | None]:
    """What plain attention gives, with the pooled rows calibrated and recorded as the pass asks."""
    baskets, calibration, recorder = calibrated_pass.baskets, calibrated_pass.calibration, calibrated_pass.recorder
    refuse_unknown_scores(key, baskets, kwargs)
    scaling, softcap = kwargs.get("scaling"), kwargs.get("softcap")
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    is_calibrated = layer in calibrated_pass.layers
    verify = calibrated_pass.verify and not module.training  # dropout changes the model's own row
    shows_weights = weights is not None and weights.ndim == 4  # flex attention returns its log-sum-exp here
    if shows_weights or verify or recorder is not None:
        with torch.autocast(query.device.type, enabled=False):
            scores = pooled_scores(pooled_query(query, baskets), key, baskets, scale, softcap)
            if verify:
                verify_rows(module, output, scores, value, baskets)
            if recorder is not None:
                recorder(layer, _masses(scores, baskets, calibration if is_calibrated else None), baskets)
        if weights is not None and shows_weights and is_calibrated:
            weights = _replace_weights(weights, redistribute(scores, baskets, calibration), baskets)
    if is_calibrated:
        calibrated_pass.layers_done += 1
        output = replace_rows(output, query, key, value, baskets, calibration, scale, softcap)
    return output, weights


@not_compiled
def _with_every_row(
    module: nn.Module,
    attachment: Attachment,
    plain: Callable[[], tuple[Tensor, Tensor | None]],
    query: Tensor,
    key: Tensor,
    value: Tensor,
    calibrated_pass: CalibratedPass,
    kwargs: dict[str, Any],
) -> tuple[Tensor, Tensor | None]:
    """Attention with every row calibrated and recorded as the pass asks; plain attention only where someone needs it."""
    baskets, calibration, recorder = calibrated_pass.baskets, calibrated_pass.calibration, calibrated_pass.recorder
    refuse_unknown_scores(key, baskets, kwargs)
    scaling, softcap = kwargs.get("scaling"), kwargs.get("softcap")
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    is_calibrated = attachment.layer in calibrated_pass.layers
    verify = calibrated_pass.verify and not module.training
    needs_plain = verify or not is_calibrated or attachment.implementation == "eager"  # which returns its weights
    output, weights = plain() if needs_plain else (query, None)
    with torch.autocast(query.device.type, enabled=False):
        states = query, key, value, baskets
        if verify:
            verify_every_row(module, output, *states, scale, softcap)
        if recorder is not None:
            masses = every_row_masses(*states, calibration if is_calibrated else None, scale, softcap)
            recorder(attachment.layer, masses, baskets)
        if is_calibrated:
            calibrated_pass.layers_done += 1
            if weights is not None and weights.ndim == 4:
                weights = _every_row_weights(weights, query, key, baskets, calibration, scale, softcap)
            output = calibrated_every_row(*states, calibration, scale, softcap)
    return output, weights


def _every_row_weights(
    weights: Tensor,  # (batch, heads, queries, keys)
    query: Tensor,
    key: Tensor,
    baskets: Baskets,
    calibration: Calibration,
    scale: float,
    softcap: float | None,
) -> Tensor:
    """The attention weights that eager attention returns, calibrated: it has the whole matrix anyway."""
    batch, heads, queries, keys = weights.shape
    # All rows of one number are the pooled rows of further heads.
    rows = query.reshape(batch, heads * queries, -1)
    scores = pooled_scores(rows, key, baskets, scale, softcap)  # (heads * queries, batch * keys)
    calibrated = redistribute(scores, baskets, calibration).view(heads, queries, batch, keys).permute(2, 0, 1, 3)
    return torch.where(baskets.active.view(-1, 1, 1, 1), calibrated.to(weights.dtype), weights)


def _masses(scores: Tensor, baskets: Baskets, calibration: Calibration | None) -> Tensor:
    """What each basket gets of its pooling token's attention.  # (heads, rows, 2 + baskets)"""
    masses = torch.softmax(basket_log_masses(scores, baskets), dim=-1)
    return masses if calibration is None else calibrated_masses(masses, plan_of(calibration, baskets))


class _PlainView:
    """An attention module as it was: FlashAttention reads its implementation from the config of the module."""

    def __init__(self, module: nn.Module, config: Any) -> None:
        self._module = module
        self.config = config

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, name)


def _plain_attention(
    module: nn.Module,
    attachment: Attachment,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    **kwargs: Any,
) -> tuple[Tensor, Tensor | None]:
    """What an attached module's own attention returns."""
    name = attachment.implementation
    if name == "sdpa" and is_packed(query, kwargs):
        return packed_attention(module, query, key, value, kwargs), None
    modeling: Any = sys.modules[type(module).__module__]  # a model may bring attention functions of its own
    plain: Callable[..., tuple[Tensor, Tensor | None]] = modeling.ALL_ATTENTION_FUNCTIONS.get_interface(
        name, modeling.eager_attention_forward
    )
    view: Any = _PlainView(module, attachment.config) if name not in ("sdpa", "eager") else module
    return plain(view, query, key, value, mask, **kwargs)


def _replace_weights(weights: Tensor, row_weights: Tensor, baskets: Baskets) -> Tensor:
    """The pooled rows of the attention weights that eager attention returns, calibrated.  # (batch, heads, queries, keys)"""
    batch, heads, queries, keys = weights.shape
    flat = weights.transpose(1, 2).reshape(batch * queries, heads, keys)
    rows = row_weights.view(heads, batch, keys).transpose(0, 1).to(weights.dtype)
    chosen = torch.where(baskets.active.view(-1, 1, 1), rows, flat[baskets.pooled])
    return flat.index_copy(0, baskets.pooled, chosen).view(batch, queries, heads, keys).transpose(1, 2)
