"""The tensors of `Baskets` in PyTorch; `evenspan.core.triton.geometry` computes the same in one launch."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from evenspan.core.triton import Geometry


class Sizes(NamedTuple):
    """The room for the baskets of a batch: how many, and of how many tokens."""

    baskets: int
    slots_each: int

    @classmethod
    def of(cls, longest: int, basket_size: int, even: bool) -> Sizes:
        """How many baskets the longest sequence can have; what no sequence can fill needs no room."""
        most, largest = -(-(longest - 1) // basket_size), basket_size
        if even:  # an only basket has less than one and a half times the size
            most, largest = (2 * (longest - 1) + basket_size) // (2 * basket_size), -(-3 * basket_size // 2)
        return cls(max(1, most), min(largest, max(longest, 1)))


def row_of_key(rows: int, columns: int, device: torch.device) -> Tensor:
    """The sequence that a key of a padded batch belongs to.  # (keys,)"""
    return torch.arange(rows, device=device).repeat_interleave(columns, output_size=rows * columns)


def geometry_of(
    valid: Tensor,
    owner: Tensor,
    pooled: Tensor,
    first: Tensor,
    last: bool,
    basket_size: int,
    even: bool,
    sizes: Sizes,
) -> Geometry:
    """The tensors of `Baskets` from what is a token and where the pooling and first tokens stand."""
    rows, (keys,) = pooled.shape[0], valid.shape
    key = torch.arange(keys, device=valid.device)
    is_pooled = key == pooled[owner]
    is_first = (key == first[owner]) & ~is_pooled & valid & last
    content = valid & ~is_pooled & ~is_first

    per_row = torch.zeros(rows, dtype=torch.long, device=valid.device)
    count = per_row.index_add(0, owner, content.long())
    before = count.cumsum(0) - count  # content tokens in earlier rows
    rank = content.long().cumsum(0) - 1 - before[owner]  # place among the row's content

    number = torch.arange(sizes.baskets + 1, device=valid.device)
    if even:
        baskets = ((2 * count + basket_size) // (2 * basket_size)).clamp(min=1)
        starts = -(-number * count.unsqueeze(1) // baskets.unsqueeze(1))
        basket = rank * baskets[owner] // count.clamp(min=1)[owner]
        long_enough = baskets > 1
    else:
        starts = (number * basket_size).expand(rows, -1)
        basket = rank // basket_size
        long_enough = count >= basket_size
    starts = torch.minimum(starts, count.unsqueeze(1))  # (rows, 1 + baskets)
    basket = basket.clamp(min=0)  # of keys that are no content, too

    width = sizes.baskets * sizes.slots_each
    # Keys that are no content are written to one spare slot at the end, which is then dropped.
    inside = rank - starts[owner, basket]
    place = torch.where(content, owner * width + basket * sizes.slots_each + inside, rows * width)
    slots = torch.zeros(rows * width + 1, dtype=torch.long, device=valid.device).scatter(0, place, key)[:-1]
    slots = slots.view(rows, *sizes)
    filled = torch.arange(sizes.slots_each, device=valid.device) < starts.diff(dim=1).unsqueeze(2)
    has_tokens = per_row.index_add(0, owner, valid.long()) > 0
    has_first = (first != pooled) & has_tokens & last
    present = torch.cat([valid[pooled].unsqueeze(1), has_first.unsqueeze(1), filled.any(dim=2)], dim=1)
    return pooled, first, slots, filled, present, long_enough & valid[pooled]
