"""The geometry of a batch and its pooled rows, fused. `fuses…` say whether tensors can be computed here."""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from evenspan.baskets import Baskets, PoolingToken
    from evenspan.calibration import Calibration

_DTYPES = (torch.float16, torch.bfloat16, torch.float32)
_LARGEST_HEAD = 256
_HAS_TRITON = importlib.util.find_spec("triton") is not None


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
        and _HAS_TRITON
    )


def fused_rows(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    baskets: Baskets,
    calibration: Calibration,
    scale: float,
    softcap: float | None = None,
    output: Tensor | None = None,
) -> Tensor:
    """The pooled rows in two launches: over those of `output`, or by themselves (see `pooled_row.launch`)."""
    from evenspan.kernels.pooled_row import launch  # Triton is imported when it is needed

    return launch(query, key, value, baskets, calibration, scale, softcap, output)


def fuses_geometry(layout: Tensor) -> bool:
    """Whether the geometry of a batch with this mask or these cumulative lengths is computed here: on CUDA."""
    return layout.device.type == "cuda" and _HAS_TRITON


def fused_geometry(
    mask: Tensor | None,
    cumulative: Tensor | None,
    pooled: Tensor | None,
    pooling: PoolingToken,
    basket_size: int,
    baskets: int,
    slots_each: int,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """The tensors of `Baskets` in one launch, from the mask of a padded batch or the lengths of a packed one."""
    from evenspan.kernels.geometry import launch

    return launch(mask, cumulative, pooled, pooling, basket_size, baskets, slots_each)
