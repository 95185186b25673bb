"""Where the attention goes: the geometry of one batch, built once and reused by every layer.

All keys of a batch stand in one flat row: a padded batch of r rows and k columns has r·k keys, a packed one has as many
as it has tokens. Both layouts then share the same maths, and no shape depends on the data.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from functools import cached_property
from itertools import accumulate
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from evenspan.core.geometry import Sizes, geometry_of, row_of_key
from evenspan.core.triton import Geometry, fused_geometry, fuses_geometry

# What a vector is read from: the first token, the last, or the mean of all.
PoolingToken = Literal["cls", "last", "mean"]

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
        keys: how many keys the batch has, padding included.
        longest: columns of a padded batch, tokens of the longest sequence of a packed one.
        packed: whether sequences stand one behind the other without padding.
        closed: whether the first token stands alone beside the pooling token, which is then the last.
    """

    pooled: Tensor
    first: Tensor
    slots: Tensor
    filled: Tensor
    present: Tensor
    active: Tensor
    keys: int
    longest: int
    packed: bool
    closed: bool

    @classmethod
    def from_mask(
        cls,
        mask: Tensor,
        pooling: PoolingToken,
        basket_size: int,
        pooled_column: Tensor | None = None,
        *,
        even: bool = False,
    ) -> Baskets:
        """Baskets of a padded batch, padding on either side, from its attention mask.  # (rows, columns)

        The pooling token is the first or the last valid token, unless `pooled_column` says otherwise.  # (rows,)
        """
        rows, columns = mask.shape
        sizes = Sizes.of(columns, basket_size, even)
        if fuses_geometry(mask):
            tensors = fused_geometry(mask, pooled_column, pooling == "last", basket_size, even, *sizes)
            return cls(*tensors, rows * columns, columns, packed=False, closed=pooling == "last")
        valid = mask.bool()
        start = torch.arange(rows, device=mask.device) * columns
        first_column = valid.int().argmax(dim=1)
        if pooled_column is None:
            last_column = columns - 1 - valid.flip(1).int().argmax(dim=1)
            pooled_column = first_column if pooling == "cls" else last_column
        owner = row_of_key(rows, columns, mask.device)
        pooled, first = start + pooled_column, start + first_column
        tensors = geometry_of(valid.flatten(), owner, pooled, first, pooling == "last", basket_size, even, sizes)
        return cls(*tensors, rows * columns, columns, packed=False, closed=pooling == "last")

    @classmethod
    def from_lengths(
        cls,
        cumulative: Tensor,
        tokens: int,
        longest: int,
        pooling: PoolingToken,
        basket_size: int,
        pooled: Tensor | None = None,
        *,
        even: bool = False,
    ) -> Baskets:
        """Baskets of a packed batch from its cumulative lengths, 0 first.  # (rows + 1,)"""
        sizes = Sizes.of(longest, basket_size, even)
        if fuses_geometry(cumulative):
            tensors = fused_geometry(cumulative, pooled, pooling == "last", basket_size, even, *sizes)
            return cls(*tensors, tokens, longest, packed=True, closed=pooling == "last")
        key = torch.arange(tokens, device=cumulative.device)
        start, end = cumulative[:-1].long(), cumulative[1:].long()
        if pooled is None:
            # A text without tokens may come first or last: it gets another text's position, and is not active.
            pooled = start.clamp(max=tokens - 1) if pooling == "cls" else (end - 1).clamp(min=0)
        owner = torch.searchsorted(end, key, right=True)
        valid = torch.ones_like(key, dtype=torch.bool)
        tensors = geometry_of(valid, owner, pooled, start, pooling == "last", basket_size, even, sizes)
        return cls(*tensors, tokens, longest, packed=True, closed=pooling == "last")

    @property
    def geometry(self) -> Geometry:
        """What the fused kernels take."""
        return self.pooled, self.first, self.slots, self.filled, self.present, self.active

    @cached_property
    def row_of_key(self) -> Tensor:
        """The sequence a key belongs to.  # (keys,)"""
        rows = self.pooled.shape[0]
        if not self.packed:
            return row_of_key(rows, self.keys // max(rows, 1), self.pooled.device)
        key = torch.arange(self.keys, device=self.pooled.device)
        return torch.searchsorted(self.first, key, right=True) - 1

    @cached_property
    def basket_of_key(self) -> Tensor:
        """The basket a key belongs to; padding has the number after the last.  # (keys,)"""
        baskets = self.slots.shape[1]
        spare = self.keys  # what does not exist is written there, and dropped
        number = torch.arange(CONTENT, CONTENT + baskets, device=self.slots.device).view(1, -1, 1)
        basket_of = torch.full((self.keys + 1,), CONTENT + baskets, dtype=torch.long, device=self.slots.device)
        basket_of = basket_of.scatter(
            0, torch.where(self.filled, self.slots, spare).flatten(), number.expand_as(self.slots).flatten()
        )
        # A packed text without tokens has another text's position, which is not its own.
        own = self.row_of_key[self.pooled] == torch.arange(self.pooled.shape[0], device=self.pooled.device)
        for basket, place in ((POOLED, self.pooled), (FIRST, self.first)):
            basket_of = basket_of.index_fill(0, torch.where(own & self.present[:, basket], place, spare), basket)
        return basket_of[:-1]

    @cached_property
    def place_of_key(self) -> Tensor:
        """Where the basket of a key stands among those of all sequences; padding has some place or other.  # (keys,)"""
        baskets = CONTENT + self.slots.shape[1]
        return self.row_of_key * baskets + self.basket_of_key.clamp(max=baskets - 1)

    @cached_property
    def real(self) -> Tensor:
        """Which keys are in a basket, and not padding.  # (keys,)"""
        return self.basket_of_key < CONTENT + self.slots.shape[1]

    @cached_property
    def alone(self) -> Tensor:
        """Flat positions of the pooling token and the first one.  # (rows, 2)"""
        # That of a packed text without tokens may be behind the last.
        return torch.stack([self.pooled, self.first.clamp(max=self.keys - 1)], dim=-1)

    @cached_property
    def spans(self) -> Tensor:
        """Of each sequence: the flat position of its first token, its tokens, its content tokens.  # (rows, 3)

        The content is -1 where padding stands between tokens.
        """
        content = self.filled.sum(dim=(1, 2))
        if self.packed:
            end = torch.cat([self.first[1:], self.first.new_full((1,), self.keys)])
            return torch.stack([self.first, end - self.first, content], dim=1)
        start = self.first if self.closed else self.pooled
        length = (content + 1 + self.present[:, FIRST]) * self.present[:, POOLED]
        last = torch.where(self.filled, self.slots, 0).amax(dim=(1, 2)) if not self.closed else self.pooled
        gapless = (last - start + 1 == length) | (content == 0)
        return torch.stack([start, length, torch.where(gapless, content, -1)], dim=1)

    @cached_property
    def sequences(self) -> list[SequenceTokens]:
        """The tokens of each sequence that has any. Waits for the device."""
        columns = self.keys if self.packed else self.keys // max(len(self.pooled), 1)
        places = torch.arange(self.keys, device=self.slots.device)[self.real]
        lengths = torch.bincount(self.row_of_key[places], minlength=len(self.pooled)).tolist()
        sizes, has_first, active = (
            self.filled.sum(dim=2).tolist(),
            self.present[:, FIRST].tolist(),
            self.active.tolist(),
        )
        sequences = []
        for number, of_sequence in enumerate(places.split(lengths)):  # type: ignore[no-untyped-call]
            if lengths[number]:
                row, start = divmod(int(of_sequence[0]), columns)
                tokens: Tensor | slice = slice(start, start + lengths[number])
                if int(of_sequence[-1]) - int(of_sequence[0]) + 1 != lengths[number]:
                    tokens = of_sequence % columns  # there is padding in between
                edges = list(accumulate((size for size in sizes[number] if size), initial=1))
                isolated = 2 if has_first[number] else 1
                sequences.append(SequenceTokens(number, row, tokens, lengths[number], edges, isolated, active[number]))
        return sequences

    @cached_property
    def empty(self) -> Tensor:
        """Which slots hold no token.  # (rows, baskets, basket_size)"""
        return ~self.filled

    @cached_property
    def absent(self) -> Tensor:
        """Which baskets do not exist.  # (rows, 2 + baskets)"""
        return ~self.present

    def to(self, device: torch.device | str) -> Baskets:
        """The same on another device."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        moved: dict[str, Any] = {name: value.to(device) for name, value in values.items() if isinstance(value, Tensor)}
        return replace(self, **moved)


class SequenceTokens(NamedTuple):
    """Where the tokens of one sequence are: the first one, content, and perhaps one more that stands alone.

    Attributes:
        number: which sequence of the batch it is.
        row: which row of the batch it is in.
        tokens: the columns of its tokens in that row.
        length: how many they are.
        edges: where among its tokens the content baskets begin, and where the last one ends.
        isolated: how many tokens stand alone: the first, or the first and the last.
        active: whether it is calibrated.
    """

    number: int
    row: int
    tokens: Tensor | slice
    length: int
    edges: list[int]
    isolated: int
    active: bool
