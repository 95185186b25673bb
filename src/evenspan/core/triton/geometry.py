"""Where the tokens of each sequence are: the maths of `evenspan.core.baskets` in one launch, a program for each sequence."""

# No postponed annotations: Triton reads those of its kernels.
import torch
import triton
import triton.language as tl
from torch import Tensor

from evenspan.core.triton.launch import relaunch

_BLOCK = 1024


def launch(
    layout: Tensor,  # the mask of a padded batch (rows, columns), or the cumulative lengths of a packed one (rows + 1,)
    pooled: Tensor | None,  # (rows,), if it is not the first or last token
    last: bool,
    basket_size: int,
    even: bool,
    baskets: int,
    slots_each: int,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """The tensors of `Baskets`: pooled, first, slots, filled, present and active."""
    width, packed = baskets * slots_each, layout.ndim == 1
    rows, columns = (layout.shape[0] - 1, width + 2) if packed else layout.shape
    # Two buffers for all: every one of them would cost as much as the launch.
    # Each part begins at a multiple of 16 bytes: a kernel is compiled anew for one that does not.
    room_each, room = _up_to(rows, 2), _up_to(rows * width, 16)
    numbers = torch.empty(2 * room_each + rows * width, dtype=torch.long, device=layout.device)
    flags = torch.empty(room + _up_to(rows * (2 + baskets), 16) + rows, dtype=torch.bool, device=layout.device)
    places, slots = (
        numbers[: 2 * room_each].view(2, room_each),
        numbers[2 * room_each :].view(rows, baskets, slots_each),
    )
    filled = flags[: rows * width].view(rows, baskets, slots_each)
    present = flags[room : room + rows * (2 + baskets)].view(rows, 2 + baskets)
    active = flags[room + _up_to(rows * (2 + baskets), 16) :]
    given = places if pooled is None else pooled
    relaunch(
        _basket_geometry,
        (rows, 1, 1),
        (layout, given, places, slots, filled, present, active),
        (),
        (rows, room_each, columns, layout.stride(0), layout.stride(-1), basket_size, baskets, slots_each),
        (packed, pooled is not None, last, even, _BLOCK),
        num_warps=4,
    )
    return places[0, :rows], places[1, :rows], slots, filled, present, active


def _up_to(number: int, multiple: int) -> int:
    return -(-number // multiple) * multiple


@triton.jit(
    do_not_specialize=["rows", "room_each", "columns", "row_stride", "stride", "basket_size", "baskets", "slots_each"]
)
def _basket_geometry(
    layout, given, places, slots, filled, present, active,
    rows, room_each, columns, row_stride, stride, basket_size, baskets, slots_each,
    PACKED: tl.constexpr, GIVEN: tl.constexpr, LAST: tl.constexpr, EVEN: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    if PACKED:
        start = tl.load(layout + row * stride).to(tl.int64)
        columns = tl.load(layout + (row + 1) * stride).to(tl.int64) - start
    else:
        start = row * columns
    first_column, last_column = _edges(layout, row, start, columns, row_stride, stride, PACKED, BLOCK)
    has_tokens = last_column >= 0
    # 0 and the last column where there is no token.
    first_column = tl.where(last_column < 0, 0, first_column)
    last_column = tl.where(last_column < 0, tl.where(PACKED, 0, columns - 1), last_column)
    first = start + first_column
    if GIVEN:
        pooled = tl.load(given + row).to(tl.int64)
        if not PACKED:
            pooled += start
    elif LAST:
        pooled = start + last_column
    else:
        pooled = start + first_column
    if PACKED:
        first = start
        if LAST and not GIVEN:
            pooled = tl.maximum(start + columns - 1, 0)
        # A text without tokens gets another text's position.
        pooled = tl.minimum(pooled, tl.load(layout + rows * stride).to(tl.int64) - 1)
    tl.store(places + row, pooled)
    tl.store(places + room_each + row, first)

    own_slots = row * baskets * slots_each
    count = _count_content(layout, row, start, pooled, first, columns, row_stride, stride, PACKED, LAST, BLOCK)
    parts, long_enough = _parts(count, basket_size, EVEN)
    _fill_slots(
        slots + own_slots, filled + own_slots, layout, row, start, pooled, first, columns, row_stride, stride,
        count, parts, basket_size, slots_each, baskets * slots_each, PACKED, LAST, EVEN, BLOCK,
    )  # fmt: skip
    if PACKED:
        has_pooled = pooled >= 0
    else:
        has_pooled = tl.load(layout + row * row_stride + (pooled - start) * stride) != 0
    tl.store(present + row * (baskets + 2), has_pooled)
    if LAST:
        tl.store(present + row * (baskets + 2) + 1, (first != pooled) & has_tokens)
    else:
        tl.store(present + row * (baskets + 2) + 1, first != first)
    at = start * 0
    while at < baskets:
        basket = at + tl.arange(0, BLOCK)
        tl.store(present + row * (baskets + 2) + 2 + basket, (basket < parts) & (count > 0), mask=basket < baskets)
        at += BLOCK
    tl.store(active + row, long_enough & has_pooled)


@triton.jit
def _parts(count, basket_size, EVEN: tl.constexpr):
    """How many baskets there are of so many content tokens, and whether a row of so many is calibrated."""
    if EVEN:
        parts = tl.maximum((2 * count + basket_size) // (2 * basket_size), 1)
        long_enough = parts > 1
    else:
        parts = (count + basket_size - 1) // basket_size
        long_enough = count >= basket_size
    return parts, long_enough


@triton.jit
def _valid(layout, row, column, columns, row_stride, stride, PACKED: tl.constexpr):
    """Which of these columns of a sequence hold a token."""
    if PACKED:
        return column < columns
    return tl.load(layout + row * row_stride + column * stride, mask=column < columns, other=0) != 0


@triton.jit
def _edges(layout, row, start, columns, row_stride, stride, PACKED: tl.constexpr, BLOCK: tl.constexpr):
    """The columns of a sequence's first and last token; the last is -1 where there is none."""
    first_column = (start * 0 + 2147483647).to(tl.int64)
    last_column = (start * 0 - 1).to(tl.int64)
    at = start * 0
    while at < columns:
        column = at + tl.arange(0, BLOCK)
        valid = _valid(layout, row, column, columns, row_stride, stride, PACKED)
        first_column = tl.minimum(first_column, tl.min(tl.where(valid, column, 2147483647), axis=0))
        last_column = tl.maximum(last_column, tl.max(tl.where(valid, column, -1), axis=0))
        at += BLOCK
    return first_column, last_column


@triton.jit
def _content(
    layout, row, start, column, pooled, first, columns, row_stride, stride, PACKED: tl.constexpr, LAST: tl.constexpr
):  # fmt: skip
    """Which of these columns of a sequence hold a content token."""
    key = start + column
    content = _valid(layout, row, column, columns, row_stride, stride, PACKED) & (key != pooled)
    if LAST:
        content = content & (key != first)
    return content


@triton.jit
def _count_content(
    layout, row, start, pooled, first, columns, row_stride, stride,
    PACKED: tl.constexpr, LAST: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """How many content tokens a sequence has."""
    count = start * 0
    at = start * 0
    while at < columns:
        column = at + tl.arange(0, BLOCK)
        content = _content(layout, row, start, column, pooled, first, columns, row_stride, stride, PACKED, LAST)
        count += tl.sum(content.to(tl.int64), axis=0)
        at += BLOCK
    return count


@triton.jit
def _basket_start(basket, count, parts, basket_size, EVEN: tl.constexpr):
    """The rank of a basket's first content token."""
    if EVEN:
        return tl.minimum((basket * count + parts - 1) // parts, count)
    return tl.minimum(basket * basket_size, count)


@triton.jit
def _fill_slots(
    slots, filled, layout, row, start, pooled, first, columns, row_stride, stride,
    count, parts, basket_size, slots_each, width,
    PACKED: tl.constexpr, LAST: tl.constexpr, EVEN: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Put a sequence's content tokens into the slots of its baskets, in order."""
    before = start * 0
    at = start * 0
    while at < columns:
        column = at + tl.arange(0, BLOCK)
        content = _content(layout, row, start, column, pooled, first, columns, row_stride, stride, PACKED, LAST)
        rank = before + tl.cumsum(content.to(tl.int64), axis=0) - 1
        if EVEN:
            basket = rank * parts // tl.maximum(count, 1)
        else:
            basket = rank // basket_size
        place = basket * slots_each + rank - _basket_start(basket, count, parts, basket_size, EVEN)
        tl.store(slots + place, start + column, mask=content)
        before += tl.sum(content.to(tl.int64), axis=0)
        at += BLOCK
    at = start * 0
    while at < width:
        slot = at + tl.arange(0, BLOCK)
        inside = slot < width
        basket = slot // slots_each
        rank = _basket_start(basket, count, parts, basket_size, EVEN) + slot % slots_each
        holds = rank < _basket_start(basket + 1, count, parts, basket_size, EVEN)
        tl.store(filled + slot, holds, mask=inside)
        tl.store(slots + slot, tl.zeros_like(slot), mask=inside & ~holds)
        at += BLOCK
