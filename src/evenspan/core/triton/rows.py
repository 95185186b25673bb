"""The pooled rows of one layer in two launches of the kernels in `triton_row`.

Strides and sizes are arguments and no shape depends on the data, so nothing waits for the device.
"""

from __future__ import annotations

import torch
import triton
from torch import Tensor

from evenspan.calibration import Calibration
from evenspan.core.baskets import Baskets
from evenspan.core.redistribute import rules_of
from evenspan.core.triton.launch import relaunch
from evenspan.core.triton.row_kernels import basket_partials, merge


def launch(
    query: Tensor,  # (batch, heads, queries, head_dim)
    key: Tensor,  # (batch, key_value_heads, keys, head_dim)
    value: Tensor,
    baskets: Baskets,
    calibration: Calibration,
    scale: float,
    softcap: float | None,
    output: Tensor | None,  # (batch, queries, heads, head_dim)
) -> Tensor:
    """Write the calibrated rows of active sequences over those of `output`, in place.

    Without an output, `query` holds the pooling tokens alone, a row each, and so does what is returned, whether a
    sequence is active or not.  # (rows, 1, heads, head_dim)
    """
    rows, content, slots = baskets.slots.shape
    _, heads, _, size = query.shape
    _, groups, columns, _ = key.shape
    target = torch.empty(rows, 1, heads, size, dtype=query.dtype, device=key.device) if output is None else output
    strides = (*query.stride()[:3], *key.stride()[:3], *value.stride()[:3], *target.stride()[:3])
    partials = torch.empty(rows, heads, content, size, dtype=torch.float32, device=key.device)
    log_masses = torch.empty(rows, heads, content, dtype=torch.float32, device=key.device)
    cap = 1.0 if softcap is None else float(softcap)
    block_baskets = triton.next_power_of_2(max(content, 2))
    numbers = (cap, float(scale), columns, content, heads // groups)
    constants = (size, max(16, triton.next_power_of_2(size)), softcap is not None, output is None)
    relaunch(
        basket_partials,
        (heads, content, rows),
        (query, key, value, baskets.pooled, baskets.slots, baskets.filled, partials, log_masses),
        strides[:9],
        numbers,
        (*constants, slots, min(128, triton.next_power_of_2(max(slots, 2)))),
        num_warps=4,
    )
    relaunch(
        merge,
        (heads, rows, 1),
        (
            query,
            key,
            value,
            target,
            baskets.pooled,
            baskets.first,
            baskets.present,
            baskets.active,
            partials,
            log_masses,
        ),
        strides,
        (*numbers, float(calibration.strength), *rules_of(calibration)),
        (*constants, block_baskets, min(16, block_baskets)),
        num_warps=2,
    )
    return target
