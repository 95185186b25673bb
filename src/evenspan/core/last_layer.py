"""The last layer, run for the pooled rows alone: nothing else of its output is ever read by a pooling token's vector.

A layer whose family is known gets a class of its own here (see `install`), and does so in calls whose `CalibratedPass`
asks for `pooled_only`. All other calls run the layer in full.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.module import _global_forward_hooks, _global_forward_pre_hooks  # those of all modules there are

from evenspan.core.attention import Attachment, CalibratedPass, not_compiled
from evenspan.core.baskets import Baskets
from evenspan.core.families import family_of, layer_class, plain_class_of
from evenspan.core.rows import calibrated_rows
from evenspan.core.verifying import refuse_unknown_scores


class PooledLayer(nn.Module):
    """A transformer layer that can leave out all rows but the pooled ones, which then keep what they came with."""

    plain_class: type[nn.Module]

    def forward(
        self, hidden_states: Tensor, *args: Any, calibrated_pass: CalibratedPass | None = None, **kwargs: Any
    ) -> Any:
        """Run the layer: the pooled rows alone if the call allows it and nobody would see the difference, else in full."""
        # Not super(): whoever keeps this method bound (a compiler, a hook) may call it when the class is the plain one again.
        plain: Any = plain_class_of(self)
        if calibrated_pass is None or not calibrated_pass.pooled_only or not _can_leave_out(self, calibrated_pass):
            return plain.forward(self, hidden_states, *args, calibrated_pass=calibrated_pass, **kwargs)
        if calibrated_pass.verify:  # in full, for the sake of verification, but what is returned is always the same
            plain.forward(self, hidden_states, *args, calibrated_pass=calibrated_pass, **kwargs)
            calibrated_pass.layers_done -= 1
        return _pooled_rows_only(self, hidden_states, calibrated_pass, kwargs)


def _can_leave_out(layer: nn.Module, calibrated_pass: CalibratedPass) -> bool:
    """Whether the layer is calibrated, and nothing but its pooled rows can be wanted."""
    family: Any = family_of(layer)
    if torch.is_grad_enabled() or family is None:
        return False
    attention = family.attention(layer)
    attachment = Attachment.of(attention)
    if attachment is None or attachment.layer not in calibrated_pass.layers:
        return False
    # Eager attention gives a sequence without any token a row of its own making.
    return attachment.implementation != "eager"


def looked_into(modules: Iterable[nn.Module]) -> bool:
    """Whether someone looks at what modules are given or return, or has changed what they do."""
    return bool(_global_forward_hooks or _global_forward_pre_hooks) or any(
        module._forward_hooks or module._forward_pre_hooks or "forward" in module.__dict__ for module in modules
    )


def modules_around(model: nn.Module, layer: nn.Module) -> tuple[nn.Module, ...]:
    """The modules that see what a layer returns: those that it is part of, and those beside it in them."""
    (place,) = (name for name, module in model.named_modules() if module is layer)
    names = place.split(".")[:-1]
    parents = [model.get_submodule(".".join(names[:depth])) for depth in range(len(names) + 1)]
    beside = [module for parent in parents if not isinstance(parent, nn.ModuleList) for module in parent.children()]
    return tuple({*parents, *beside})


@not_compiled
def _pooled_rows_only(
    layer: nn.Module, hidden: Tensor, calibrated_pass: CalibratedPass, kwargs: dict[str, Any]
) -> Tensor:
    family: Any = family_of(layer)
    attention, baskets = family.attention(layer), calibrated_pass.baskets
    rotation = kwargs.get("position_embeddings")
    states = family.attended(layer, hidden)
    keys, values = family.keys_and_values(attention, states, rotation)
    refuse_unknown_scores(keys, baskets, {"sliding_window": window_of(attention)})
    queries = family.query(attention, states.flatten(0, 1)[baskets.pooled], pooled_rotation(rotation, hidden, baskets))
    rows = calibrated_rows(queries, keys, values, baskets, calibrated_pass.calibration, attention.scaling)
    calibrated_pass.layers_done += 1
    flat = hidden.flatten(0, 1)
    finished = family.finish(layer, flat[baskets.pooled], rows.flatten(1))
    if baskets.packed:  # a text without tokens has another text's position, where that text's row must stand
        finished = finished[baskets.row_of_key[baskets.pooled]]
    return flat.index_copy(0, baskets.pooled, finished.to(hidden.dtype)).view(hidden.shape)


def pooled_rotation(
    rotation: tuple[Tensor, Tensor] | None, hidden: Tensor, baskets: Baskets
) -> tuple[Tensor, Tensor] | None:
    """The rotary positions of the pooling tokens.  # (rows, 1, head_dim)"""
    if rotation is None:
        return None
    # One row of positions may serve the whole batch.
    shared = rotation[0].shape[0] == 1 and hidden.shape[0] > 1
    place = baskets.pooled % hidden.shape[1] if shared else baskets.pooled
    cos, sin = (part.flatten(0, 1)[place].unsqueeze(1) for part in rotation)
    return cos, sin


def window_of(attention: Any) -> int | None:
    """The tokens that a self-attention module looks back, or None for all."""
    window: int | None = getattr(attention, "sliding_window", None)
    if not hasattr(attention, "sliding_window"):  # Mistral's stands in its config
        window = getattr(attention.config, "sliding_window", None)
    return window


def find_layers(model: nn.Module, attentions: Iterable[nn.Module]) -> list[nn.Module | None]:
    """The layers of known families that have these self-attention modules, None for those of others."""
    layer_of: dict[nn.Module, nn.Module] = {}
    for module in model.modules():
        family: Any = family_of(module)
        if family is not None and not hasattr(module, "crossattention"):
            layer_of.setdefault(family.attention(module), module)
    return [layer_of.get(attention) for attention in attentions]


@functools.cache
def pooled_class(name: str) -> type[nn.Module]:
    """The class that the layer class of this name gets; named as that one is, and found here under its name by pickle."""
    plain = layer_class(name)
    return type(name, (PooledLayer, plain), {"plain_class": plain, "__module__": __name__})


def __getattr__(name: str) -> type[nn.Module]:
    return pooled_class(name)
