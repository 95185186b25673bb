"""Change a model and change it back: attention that can be calibrated, a last layer that can leave out rows, a forward.

Attached modules do what they always do until a call carries a `CalibratedPass`. They stay attached until everybody who
attached them has detached them.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from weakref import WeakKeyDictionary

from torch import nn
from transformers import AttentionInterface

from evenspan.core.attention import Attachment, calibrated_attention
from evenspan.core.last_layer import PooledLayer, pooled_class
from evenspan.core.usage import TURN

# transformers treats names that contain "sdpa", "flash" or "flex" specially; this one does not.
_NAME = "evenspan_calibrated"


def register() -> None:
    """Tell transformers about our attention function: needed once in every process that runs a calibrated model."""
    AttentionInterface.register(_NAME, calibrated_attention)


def attach(
    layers: Mapping[int, nn.Module], last_layer: nn.Module | None = None, *, for_good: bool = False
) -> list[nn.Module]:
    """Make attention modules, by their numbers, able to be calibrated, and a last layer able to leave out rows.

    Returns:
        The modules, for `detach`.
    """
    register()
    with TURN:
        for number, module in layers.items():
            attachment = Attachment.of(module)
            _hold(module, attached_before=attachment is not None)
            if attachment is None or for_good:
                attachment = Attachment(number, attachment.config if attachment else module.config, for_good)
                setattr(module, Attachment.NAME, attachment)
            # Only these modules see our name. The model's config keeps its own, so masks are built as ever.
            config = copy.copy(attachment.config)
            config._attn_implementation_internal = _NAME
            module.config = config
        if last_layer is None:
            return list(layers.values())
        _hold(last_layer, attached_before=isinstance(last_layer, PooledLayer))
        if not isinstance(last_layer, PooledLayer):
            layer: Any = last_layer
            layer.__class__ = pooled_class(type(last_layer).__name__)
        return [*layers.values(), last_layer]


def detach(modules: Iterable[nn.Module]) -> None:
    """Give modules their own config and class back, unless someone else has attached them too."""
    with TURN:
        for module in modules:
            others = _holders.pop(module, 1) - 1
            if others > 0:
                _holders[module] = others
                continue
            attachment = Attachment.of(module)
            if attachment is not None:
                module.config = attachment.config
                delattr(module, Attachment.NAME)
            if isinstance(module, PooledLayer):
                layer: Any = module
                layer.__class__ = module.plain_class


# How many have attached a module. A copy of an attached module is not in here: it has one.
_holders: WeakKeyDictionary[nn.Module, int] = WeakKeyDictionary()


def _hold(module: nn.Module, *, attached_before: bool) -> None:
    _holders[module] = _holders.get(module, int(attached_before)) + 1


@contextmanager
def attached(layers: Mapping[int, nn.Module], last_layer: nn.Module | None = None) -> Iterator[None]:
    """`attach` for a while."""
    modules = attach(layers, last_layer)
    try:
        yield
    finally:
        detach(modules)


def override(module: nn.Module, forward: Callable[..., Any] | None) -> Callable[..., Any] | None:
    """Give a module a forward of its own, or None for that of its class; returns the one it had."""
    # An attribute of the object, not a hook: it also serves callers that use module.forward(...) directly.
    before: Callable[..., Any] | None = module.__dict__.get("forward")
    if forward is not None:
        module.__dict__["forward"] = forward
    elif before is not None:
        del module.__dict__["forward"]
    return before


@contextmanager
def overridden(module: nn.Module, forward: Callable[..., Any]) -> Iterator[None]:
    """A module with another forward for a while."""
    before = override(module, forward)
    try:
        yield
    finally:
        override(module, before)
