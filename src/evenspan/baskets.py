"""Where the attention goes: the geometry of one batch, built once and reused by every layer.

All keys of a batch stand in one flat row: a padded batch of r rows and k columns has r·k keys, a packed one has as many
as it has tokens. Both layouts then share the same maths, and no shape depends on the data.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

PoolingToken = Literal["cls", "last"]

# Basket numbers of the two tokens that stand alone; content baskets follow.
POOLED, FIRST, CONTENT = 0, 1, 2


@dataclass(frozen=True)
class Baskets:
    """The pooled row, the isolated tokens and the content baskets of every sequence of a batch.

    Attributes:
        pooled: flat position of each sequence's pooling token.  # (rows,)
        first: flat position of each sequence's first token.  # (rows,)
        slots: flat position of each content token, basket by basket.  # (rows, baskets, basket_size)
        filled: which slots hold a token.  # (rows, baskets, basket_size)
        present: which baskets exist: the pooling token's, the first token's, the content ones.  # (rows, 2 + baskets)
        active: which sequences are calibrated at all.  # (rows,)
        row_of_key: the sequence a key belongs to.  # (keys,)
        basket_of_key: the basket a key belongs to; padding has the number after the last.  # (keys,)
        longest: columns of a padded batch, tokens of the longest sequence of a packed one.
        packed: whether sequences stand one behind the other without padding.
    """

    pooled: Tensor
    first: Tensor
    slots: Tensor
    filled: Tensor
    present: Tensor
    active: Tensor
    row_of_key: Tensor
    basket_of_key: Tensor
    longest: int
    packed: bool

    @classmethod
    def from_mask(
        cls, mask: Tensor, pooling: PoolingToken, basket_size: int, pooled_column: Tensor | None = None
    ) -> Baskets:
        """Baskets of a padded batch, padding on either side, from its attention mask.  # (rows, columns)

        The pooling token is the first or the last valid token, unless `pooled_column` says otherwise.  # (rows,)
        """
        valid = mask.bool()
        rows, columns = valid.shape
        start = torch.arange(rows, device=mask.device) * columns
        first_column = valid.int().argmax(dim=1)
        if pooled_column is None:
            last_column = columns - 1 - valid.flip(1).int().argmax(dim=1)
            pooled_column = first_column if pooling == "cls" else last_column
        row_of_key = torch.arange(rows, device=mask.device).repeat_interleave(columns, output_size=rows * columns)
        pooled, first = start + pooled_column, start + first_column
        return cls._build(valid.flatten(), row_of_key, pooled, first, pooling, basket_size, columns, packed=False)

    @classmethod
    def from_lengths(
        cls,
        cumulative: Tensor,
        tokens: int,
        longest: int,
        pooling: PoolingToken,
        basket_size: int,
        pooled: Tensor | None = None,
    ) -> Baskets:
        """Baskets of a packed batch from its cumulative lengths, 0 first.  # (rows + 1,)"""
        key = torch.arange(tokens, device=cumulative.device)
        start, end = cumulative[:-1].long(), cumulative[1:].long()
        row_of_key = torch.searchsorted(end, key, right=True)
        if pooled is None:
            pooled = start if pooling == "cls" else (end - 1).clamp(min=0)  # a text without tokens may come first
        valid = torch.ones_like(key, dtype=torch.bool)
        return cls._build(valid, row_of_key, pooled, start, pooling, basket_size, longest, packed=True)

    @classmethod
    def _build(
        cls,
        valid: Tensor,
        row_of_key: Tensor,
        pooled: Tensor,
        first: Tensor,
        pooling: PoolingToken,
        basket_size: int,
        longest: int,
        packed: bool,
    ) -> Baskets:
        rows, (keys,) = pooled.shape[0], valid.shape
        key = torch.arange(keys, device=valid.device)
        is_pooled = key == pooled[row_of_key]
        is_first = (key == first[row_of_key]) & ~is_pooled & valid & (pooling == "last")
        content = valid & ~is_pooled & ~is_first

        per_row = torch.zeros(rows, dtype=torch.long, device=valid.device)
        count = per_row.index_add(0, row_of_key, content.long())
        before = count.cumsum(0) - count  # content tokens in earlier rows
        rank = content.long().cumsum(0) - 1 - before[row_of_key]  # place among the row's content

        slots_each = min(basket_size, max(longest, 1))  # what no sequence can fill needs no room
        baskets = max(1, -(-(longest - 1) // basket_size))
        width = baskets * slots_each
        # Keys that are no content are written to one spare slot at the end, which is then dropped.
        place = torch.where(content, row_of_key * width + rank, rows * width)
        slots = torch.zeros(rows * width + 1, dtype=torch.long, device=valid.device).scatter(0, place, key)[:-1]
        slots = slots.view(rows, baskets, slots_each)
        filled = torch.arange(width, device=valid.device).expand(rows, width) < count.unsqueeze(1)
        filled = filled.view(rows, baskets, slots_each)

        padding = baskets + CONTENT
        alone = torch.where(is_pooled & valid, POOLED, torch.where(is_first, FIRST, padding))
        has_first = (first != pooled) & (pooling == "last")
        return cls(
            pooled=pooled,
            first=first,
            slots=slots,
            filled=filled,
            present=torch.cat([valid[pooled].unsqueeze(1), has_first.unsqueeze(1), filled.any(dim=2)], dim=1),
            active=(count >= basket_size) & valid[pooled],
            row_of_key=row_of_key,
            basket_of_key=torch.where(content, rank // basket_size + CONTENT, alone),
            longest=longest,
            packed=packed,
        )
