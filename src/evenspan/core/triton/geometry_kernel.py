"""Where the tokens of each sequence are: the maths of `evenspan.core.baskets`, one program for each sequence."""

import triton
import triton.language as tl


@triton.jit
def _valid(layout, row, column, columns, row_stride, stride, PACKED: tl.constexpr):
    """Which of these columns of a sequence hold a token."""
    if PACKED:
        return column < columns
    return tl.load(layout + row * row_stride + column * stride, mask=column < columns, other=0) != 0


@triton.jit(do_not_specialize=["rows", "columns", "row_stride", "stride", "basket_size", "baskets", "slots_each"])
def basket_geometry(
    layout, given, places, slots, filled, present, active,
    rows, columns, row_stride, stride, basket_size, baskets, slots_each,
    PACKED: tl.constexpr, GIVEN: tl.constexpr, LAST: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    block = tl.arange(0, BLOCK)
    if PACKED:
        start = tl.load(layout + row * stride).to(tl.int64)
        columns = tl.load(layout + (row + 1) * stride).to(tl.int64) - start
    else:
        start = row * columns
    # The first and the last token; 0 and the last column where there is none.
    first_column = (start * 0 + 2147483647).to(tl.int64)
    last_column = (start * 0 - 1).to(tl.int64)
    at = start * 0
    while at < columns:
        column = at + block
        valid = _valid(layout, row, column, columns, row_stride, stride, PACKED)
        first_column = tl.minimum(first_column, tl.min(tl.where(valid, column, 2147483647), axis=0))
        last_column = tl.maximum(last_column, tl.max(tl.where(valid, column, -1), axis=0))
        at += BLOCK
    has_tokens = last_column >= 0
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
    tl.store(places + rows + row, first)

    # Content tokens go to their slots in order.
    count = start * 0
    at = start * 0
    while at < columns:
        column = at + block
        key = start + column
        content = _valid(layout, row, column, columns, row_stride, stride, PACKED) & (key != pooled)
        if LAST:
            content = content & (key != first)
        rank = count + tl.cumsum(content.to(tl.int64), axis=0) - 1
        tl.store(slots + row * baskets * slots_each + rank, key, mask=content)
        count += tl.sum(content.to(tl.int64), axis=0)
        at += BLOCK
    at = start * 0
    while at < baskets * slots_each:
        slot = at + block
        inside = slot < baskets * slots_each
        tl.store(filled + row * baskets * slots_each + slot, slot < count, mask=inside)
        tl.store(slots + row * baskets * slots_each + slot, tl.zeros_like(slot), mask=inside & (slot >= count))
        at += BLOCK
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
        basket = at + block
        tl.store(present + row * (baskets + 2) + 2 + basket, basket * slots_each < count, mask=basket < baskets)
        at += BLOCK
    tl.store(active + row, (count >= basket_size) & has_pooled)
