"""The geometry of a batch in one launch of the kernel in `triton_geometry`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import triton
from torch import Tensor

from evenspan.core.triton.geometry_kernel import basket_geometry
from evenspan.core.triton.launch import relaunch

if TYPE_CHECKING:
    from evenspan.core.baskets import PoolingToken

_BLOCK = 1024


def launch(
    mask: Tensor | None,  # (rows, columns) of a padded batch
    cumulative: Tensor | None,  # (rows + 1,) of a packed one
    pooled: Tensor | None,  # (rows,), if it is not the first or last token
    pooling: PoolingToken,
    basket_size: int,
    baskets: int,
    slots_each: int,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """The tensors of `Baskets`: pooled, first, slots, filled, present and active."""
    if mask is not None:
        layout, rows, columns = mask, *mask.shape
    elif cumulative is not None:
        layout, rows, columns = cumulative, cumulative.shape[0] - 1, baskets * slots_each + 2
    else:
        raise ValueError("A geometry needs a mask or cumulative lengths.")
    width = baskets * slots_each
    # Two buffers for all: every one of them would cost as much as the launch.
    numbers = torch.empty(2 * rows + rows * width, dtype=torch.long, device=layout.device)
    flags = torch.empty(rows * (width + 3 + baskets), dtype=torch.bool, device=layout.device)
    places, slots = numbers[: 2 * rows].view(2, rows), numbers[2 * rows :].view(rows, baskets, slots_each)
    filled = flags[: rows * width].view(rows, baskets, slots_each)
    present = flags[rows * width : rows * (width + 2 + baskets)].view(rows, 2 + baskets)
    active = flags[rows * (width + 2 + baskets) :]
    given = places if pooled is None else pooled
    relaunch(
        basket_geometry,
        (rows, 1, 1),
        (layout, given, places, slots, filled, present, active),
        (),
        (rows, columns, layout.stride(0), layout.stride(-1), basket_size, baskets, slots_each),
        (mask is None, pooled is not None, pooling == "last", min(_BLOCK, triton.next_power_of_2(max(columns, width)))),
        num_warps=4,
    )
    return places[0], places[1], slots, filled, present, active
