"""Change a model and change it back: attention that can be calibrated, a last layer that can leave out rows, a forward.

Attached modules do what they always do until a call carries a `CalibratedPass`. What is attached already stays so:
whoever attaches for a while takes back only what was not there before.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from torch import nn
from transformers import AttentionInterface

from evenspan.core.attention import Attachment, calibrated_attention
from evenspan.core.last_layer import PooledLayer, pooled_class

# transformers treats names that contain "sdpa", "flash" or "flex" specially; this one does not.
_NAME = "evenspan_calibrated"


def register() -> None:
    """Tell transformers about our attention function: needed once in every process that runs a calibrated model."""
    AttentionInterface.register(_NAME, calibrated_attention)


def attach(layers: Mapping[int, nn.Module], last_layer: nn.Module | None = None) -> list[nn.Module]:
    """Make attention modules, by their numbers, able to be calibrated, and a last layer able to leave out rows.

    Returns:
        The modules that were not attached before.
    """
    register()
    new: list[nn.Module] = []
    for number, module in layers.items():
        attachment = Attachment.of(module)
        if attachment is None:
            attachment = Attachment(number, module.config)
            setattr(module, Attachment.NAME, attachment)
            new.append(module)
        # Only these modules see our name. The model's config keeps its own, so masks are built as ever.
        config = copy.copy(attachment.config)
        config._attn_implementation_internal = _NAME
        module.config = config
    if last_layer is not None and not isinstance(last_layer, PooledLayer):
        layer: Any = last_layer
        layer.__class__ = pooled_class(type(last_layer).__name__)
        new.append(last_layer)
    return new


def detach(modules: Iterable[nn.Module]) -> None:
    """Give modules their own config and class back; those that are not attached are left alone."""
    for module in modules:
        attachment = Attachment.of(module)
        if attachment is not None:
            module.config = attachment.config
            delattr(module, Attachment.NAME)
        if isinstance(module, PooledLayer):
            layer: Any = module
            layer.__class__ = module.plain_class


@contextmanager
def attached(layers: Mapping[int, nn.Module], last_layer: nn.Module | None = None) -> Iterator[None]:
    """`attach` for a while."""
    new = attach(layers, last_layer)
    try:
        yield
    finally:
        detach(new)


@contextmanager
def overridden(module: nn.Module, forward: Callable[..., Any]) -> Iterator[None]:
    """A module with another forward for a while."""
    # An attribute of the object, not a hook: it also serves callers that use module.forward(...) directly.
    before = module.__dict__.get("forward")
    module.__dict__["forward"] = forward
    try:
        yield
    finally:
        if before is None:
            del module.__dict__["forward"]
        else:
            module.__dict__["forward"] = before
