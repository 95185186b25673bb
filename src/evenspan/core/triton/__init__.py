"""The geometry of a batch (`geometry`) and its pooled rows (`rows`), fused. `fuses…` say for which tensors.

Nothing here knows what a basket means: tensors and numbers come in, tensors go out. Triton is imported when it is needed.
"""

from __future__ import annotations

import importlib.util
import warnings

import torch
from torch import Tensor

# What describes the baskets of a batch: pooled, first, slots, filled, present and active (see `core.baskets`).
Geometry = tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]

_DTYPES = (torch.float16, torch.bfloat16, torch.float32)
_LARGEST_HEAD = 256
_HAS_TRITON = importlib.util.find_spec("triton") is not None
_working: dict[torch.device, bool] = {}


def fuses(query: Tensor, key: Tensor, value: Tensor) -> bool:
    """Whether the fused kernels take these tensors: on CUDA, of a known dtype, and without gradients."""
    return (
        key.device.type == "cuda"
        and query.dtype == key.dtype == value.dtype
        and key.dtype in _DTYPES
        and key.shape[-1] <= _LARGEST_HEAD
        and value.shape[-1] == key.shape[-1]
        and query.stride(-1) == key.stride(-1) == value.stride(-1) == 1
        and not (torch.is_grad_enabled() and (query.requires_grad or key.requires_grad or value.requires_grad))
        and _works_on(key.device)
    )


def fuses_geometry(layout: Tensor) -> bool:
    """Whether the geometry of a batch with this mask or these cumulative lengths is computed here: on CUDA."""
    return layout.device.type == "cuda" and _works_on(layout.device)


def fused_geometry(
    layout: Tensor, pooled: Tensor | None, last: bool, basket_size: int, even: bool, baskets: int, slots_each: int
) -> Geometry:
    """The geometry in one launch, from the mask of a padded batch or the cumulative lengths of a packed one."""
    from evenspan.core.triton.geometry import launch

    return launch(layout, pooled, last, basket_size, even, baskets, slots_each)


def _works_on(device: torch.device) -> bool:
    """Whether Triton is there and can build kernels for a device; found out once, by building one."""
    if device not in _working:
        _working[device] = _HAS_TRITON and _try(device)
    return _working[device]


def _try(device: torch.device) -> bool:
    mask = torch.ones(1, 4, dtype=torch.long, device=device)
    try:
        fused_geometry(mask, None, last=False, basket_size=2, even=False, baskets=2, slots_each=2)
    except Exception as error:  # no compiler, a device that Triton does not know: everything runs in PyTorch
        reason = (str(error).splitlines() or [""])[0]
        warnings.warn(
            f"Triton cannot be used on {device} ({reason}): calibration runs in PyTorch, slower.", stacklevel=2
        )
        return False
    return True
