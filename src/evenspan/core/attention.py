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
from functools import cached_property
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from transformers import AttentionInterface

from evenspan.calibration import Calibration
from evenspan.core.baskets import Baskets
from evenspan.core.redistribute import redistribute
from evenspan.core.rows import plain_rows, pooled_query, pooled_scores, replace_rows

# transformers treats names that contain "sdpa", "flash" or "flex" specially; this one does not.
_NAME = "evenspan_calibrated"
_PLAIN_CONFIG = "_evenspan_plain_config"


Function = TypeVar("Function", bound=Callable[..., Any])


def not_compiled(function: Function) -> Function:
    """Keep compilers out of a function: they get the model's own code and no more.

    With ours in one graph with a causal model, inductor gave wrong rows on CUDA (torch 2.11), also of texts too short to be
    calibrated, unless its padding of strides (`comprehensive_padding`) was off.
    """
    disable: Callable[[Function], Function] = torch.compiler.disable
    return disable(function)


def tolerance(dtype: torch.dtype) -> float:
    """How far a row computed here may be, relatively, from the model's own before its attention counts as unknown."""
    return 1e-3 if dtype in (torch.float32, torch.float64) else 5e-2


@dataclass
class CalibratedPass:
    """One calibrated forward call: its setting, its geometry, and what became of it."""

    calibration: Calibration
    geometry: Baskets | Callable[[], Baskets]
    verify: bool = False
    pooled_only: bool = False  # whether the last layer may compute the pooled rows and no others
    layers_done: int = 0

    @cached_property
    def baskets(self) -> Baskets:
        """The geometry, built in the first calibrated layer: a device is then busy with those before it."""
        return self.geometry if isinstance(self.geometry, Baskets) else self.geometry()


def attach(modules: Iterable[nn.Module], implementation: str = _NAME) -> None:
    """Make these attention modules calibrate whatever call carries a `CalibratedPass`, or run another implementation."""
    register()
    for module in modules:
        # Only these modules see our name. The model's config keeps its own, so masks are built as ever.
        plain: Any = module.config
        config = copy.copy(plain)
        config._attn_implementation_internal = implementation
        setattr(module, _PLAIN_CONFIG, plain)
        module.config = config


def detach(model: nn.Module) -> list[nn.Module]:
    """Give all attention modules of a model their own config back; returns those that had been attached."""
    attached = [module for module in model.modules() if _PLAIN_CONFIG in module.__dict__]
    for module in attached:
        module.config = module.__dict__.pop(_PLAIN_CONFIG)
    return attached


def is_attached(module: nn.Module) -> bool:
    """Whether an attention module is one that `attach` was given."""
    return _PLAIN_CONFIG in module.__dict__


def plain_implementation(module: nn.Module) -> str:
    """The attention that an attached module runs for all rows."""
    name: str = getattr(module, _PLAIN_CONFIG)._attn_implementation
    return name


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
    output, weights = plain_attention(module, query, key, value, attention_mask, **kwargs)
    if calibrated_pass is None:
        return output, weights
    return _with_pooled_rows(module, output, weights, query, key, value, calibrated_pass, kwargs)


@not_compiled
def _with_pooled_rows(
    module: nn.Module,
    output: Tensor,
    weights: Tensor | None,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    calibrated_pass: CalibratedPass,
    kwargs: dict[str, Any],
) -> tuple[Tensor, Tensor | None]:
    """What plain attention gives, with the pooled rows calibrated."""
    refuse_unknown_scores(key, calibrated_pass.baskets, kwargs)
    baskets, calibration = calibrated_pass.baskets, calibrated_pass.calibration
    scaling, softcap = kwargs.get("scaling"), kwargs.get("softcap")
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    calibrated_pass.layers_done += 1
    if weights is not None or (calibrated_pass.verify and not module.training):
        with torch.autocast(query.device.type, enabled=False):
            scores = pooled_scores(pooled_query(query, baskets), key, baskets, scale, softcap)
        if calibrated_pass.verify and not module.training:  # dropout changes the model's own row
            _verify(module, output, scores, value, baskets)
        if weights is not None:
            weights = _replace_weights(weights, redistribute(scores, baskets, calibration), baskets)
    return replace_rows(output, query, key, value, baskets, calibration, scale, softcap), weights


class _PlainView:
    """An attention module as it was: FlashAttention reads its implementation from the config of the module."""

    def __init__(self, module: nn.Module) -> None:
        self._module = module
        self.config = getattr(module, _PLAIN_CONFIG)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, name)


def plain_attention(module: nn.Module, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor | None]:
    """What an attached module's own attention returns."""
    name = plain_implementation(module)
    modeling: Any = sys.modules[type(module).__module__]  # a model may bring attention functions of its own
    plain: Callable[..., tuple[Tensor, Tensor | None]] = modeling.ALL_ATTENTION_FUNCTIONS.get_interface(
        name, modeling.eager_attention_forward
    )
    view: Any = _PlainView(module) if name not in ("sdpa", "eager") else module
    return plain(view, *args, **kwargs)


def _replace_weights(weights: Tensor, row_weights: Tensor, baskets: Baskets) -> Tensor:
    """The pooled rows of the attention weights that eager attention returns, calibrated.  # (batch, heads, queries, keys)"""
    batch, heads, queries, keys = weights.shape
    flat = weights.transpose(1, 2).reshape(batch * queries, heads, keys)
    rows = row_weights.view(heads, batch, keys).transpose(0, 1).to(weights.dtype)
    chosen = torch.where(baskets.active.view(-1, 1, 1), rows, flat[baskets.pooled])
    return flat.index_copy(0, baskets.pooled, chosen).view(batch, queries, heads, keys).transpose(1, 2)


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


def _verify(module: nn.Module, output: Tensor, scores: Tensor, value: Tensor, baskets: Baskets) -> None:
    """Compare the plain row as computed here with the model's own, so that an attention with something in it that is
    not known here (a bias, a window, a temperature) is refused instead of calibrated wrongly.
    """
    with torch.autocast(value.device.type, enabled=False):
        plain = plain_rows(scores, value, baskets)
    expected = output.reshape(-1, *output.shape[2:])[baskets.pooled].float()
    if not baskets.active.any():
        return
    off = (plain - expected)[baskets.active].norm() / expected[baskets.active].norm().clamp(min=1e-12)
    if not off <= tolerance(output.dtype):
        raise RuntimeError(
            f"{type(module).__name__} computes its attention in a way that evenspan does not know: its pooled row is "
            f"off by {off:.1%} from softmax(q·k)·v. This model cannot be calibrated; use it plain "
            "(evenspan.restore(model))."
        )
