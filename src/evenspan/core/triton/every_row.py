"""Every row of a mean-pooled model in one launch: flash attention whose tiles are the baskets.

A tile gives its basket's own softmax, which the equalised sum takes, and with a common base the plain online softmax takes it
too: two accumulators and the same two products as flash attention. A basket that is no tile (even ones, sizes that are no
power of two, more than 128 tokens) is part of one, or has a running softmax of its own over several. A sequence that is too
short to be calibrated has one basket, which gets what it had.

Names in capitals are constants that the kernel is compiled for: head and basket size and the layout, never a length.
"""

# No postponed annotations: Triton reads those of its kernels.
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from evenspan.core.triton.launch import relaunch

_SMALLEST, _LARGEST = 16, 128  # keys of a tile
_FEW: tl.constexpr = tl.constexpr(3)  # tiles for the rest of a basket
_chosen: dict[tuple[Any, ...], int] = {}  # the first of several tilings that a device has room for


class Tiling(NamedTuple):
    """How the work is cut for a device: rows and keys of a tile, warps, and stages of the pipeline."""

    rows: int
    keys: int
    rest: int  # keys of the tiles for what a basket has beyond the first
    num_warps: int
    num_stages: int


def launch(
    query: Tensor,  # (batch, heads, tokens, head_dim)
    key: Tensor,  # (batch, key_value_heads, tokens, head_dim)
    value: Tensor,
    spans: Tensor,  # (sequences, 3): flat position of the first token, tokens, content tokens
    cut: tuple[int, bool],  # the size of baskets, and whether they are even ones
    layout: tuple[int, bool, bool],  # most tokens of a sequence, whether the batch is packed, whether texts are closed
    strength: float,
    scale: float,
    softcap: float | None,
    tiling: Tiling | None = None,
) -> Tensor:
    """What every token gets out of its calibrated attention.  # (batch, tokens, heads, head_dim)"""
    batch, heads, columns, size = query.shape
    (basket_size, even), (longest, packed, closed) = cut, layout
    output = torch.empty(batch, columns, heads, size, dtype=query.dtype, device=query.device)
    is_tile = not even and _SMALLEST <= basket_size <= _LARGEST and basket_size & (basket_size - 1) == 0
    largest = -(-3 * basket_size // 2) if even else basket_size  # of an only basket
    block_d = max(16, triton.next_power_of_2(size))
    tilings = (tiling,) if tiling else tilings_for(block_d, basket_size, even, query.element_size())
    key_of_choice = (query.device, query.dtype, block_d, basket_size, even)
    strides = (*query.stride()[:3], *key.stride()[:3], *value.stride()[:3], *output.stride()[:3])
    cap = 1.0 if softcap is None else float(softcap)
    numbers = (cap, float(scale), float(strength), columns, basket_size, heads // key.shape[1])
    for number in range(_chosen.get(key_of_choice, 0) if tiling is None else 0, len(tilings)):
        chosen = tilings[number]
        kind = (size, block_d, softcap is not None, packed, closed, even, is_tile, strength < 1.0)
        rests = -(-(largest - chosen.keys) // chosen.rest)
        constants = (*kind, chosen.rows, chosen.keys, chosen.rest, rests)
        grid = (triton.cdiv(longest, chosen.rows), heads, spans.shape[0])
        options = {"num_warps": chosen.num_warps, "num_stages": chosen.num_stages}
        try:
            relaunch(_every_row, grid, (query, key, value, output, spans), strides, numbers, constants, **options)
        except triton.OutOfResources:
            if number + 1 == len(tilings):
                raise
            continue
        if tiling is None:
            _chosen[key_of_choice] = number
        break
    return output


def tilings_for(block_d: int, basket_size: int, even: bool, bytes_each: int) -> tuple[Tiling, ...]:
    """Tilings to try, the best first: for heads and baskets of this size, on devices with ever less memory on chip."""
    largest = -(-5 * basket_size // 4) if even else basket_size  # of baskets of which there are several
    keys = min(_LARGEST, max(_SMALLEST, triton.next_power_of_2(basket_size + 1) // 2))
    rest = min(keys, max(_SMALLEST, triton.next_power_of_2(max(1, largest - keys))))
    if bytes_each == 4:
        sizes = ((64 if block_d <= 64 else 32, 4, 2), (32, 4, 1), (16, 4, 1))
    elif block_d >= 256:
        sizes = ((64, 8, 1), (32, 4, 1), (16, 4, 1))
    elif block_d >= 128:
        sizes = ((128, 8, 2), (64, 4, 2), (64, 4, 1), (32, 4, 1), (16, 4, 1))
    else:  # two blocks of 64 rows on a multiprocessor: one computes weights while the other multiplies
        sizes = ((64, 4, 3), (64, 4, 2), (32, 4, 1), (16, 4, 1))
    return tuple(Tiling(rows, keys, rest, warps, stages) for rows, warps, stages in sizes)


@triton.jit(do_not_specialize=["columns", "basket_size", "heads_per_group"])
def _every_row(
    query, key, value, output, spans,
    query_batch, query_head, query_column,
    key_batch, key_head, key_column,
    value_batch, value_head, value_column,
    output_batch, output_column, output_head,
    softcap, scale, strength, columns, basket_size, heads_per_group,
    HEAD: tl.constexpr, BLOCK_D: tl.constexpr, CAPPED: tl.constexpr, PACKED: tl.constexpr, CLOSED: tl.constexpr,
    EVEN: tl.constexpr, IS_TILE: tl.constexpr, MIXES: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
    BLOCK_REST: tl.constexpr, RESTS: tl.constexpr,
):  # fmt: skip
    head = tl.program_id(1).to(tl.int64)
    sequence = tl.program_id(2).to(tl.int64)
    start = tl.load(spans + sequence * 3)
    length = tl.load(spans + sequence * 3 + 1)
    content = tl.load(spans + sequence * 3 + 2).to(tl.int32)
    batch, first = start // columns, start % columns
    begin = tl.program_id(0) * BLOCK_M
    at = begin + tl.arange(0, BLOCK_M)
    dims = tl.arange(0, BLOCK_D)
    in_head = dims < HEAD
    if PACKED:
        if begin >= length:
            return
        inside = at < length
        column = first + at
    else:
        inside = at < columns
        column = at.to(tl.int64)
        batch = sequence
    place = output + batch * output_batch + head * output_head + column[:, None] * output_column + dims[None, :]
    writes = inside[:, None] & in_head[None, :]
    if not PACKED:
        if (begin >= first + length) | (
            begin + BLOCK_M <= first
        ):  # padding, where nothing may be left that could spread
            tl.store(place, tl.zeros([BLOCK_M, BLOCK_D], dtype=output.dtype.element_ty), mask=writes)
            return
    group = head // heads_per_group
    rows = tl.load(
        query + batch * query_batch + head * query_head + column[:, None] * query_column + dims[None, :],
        mask=writes,
        other=0.0,
    )
    keys = key + batch * key_batch + group * key_head + first * key_column
    values = value + batch * value_batch + group * value_head + first * value_column
    parts, mixed, shared, highest, total = _over_content(
        rows, keys + key_column, values + value_column, content, basket_size, key_column, value_column, softcap, scale,
        HEAD, BLOCK_D, CAPPED, EVEN, IS_TILE, MIXES, BLOCK_M, BLOCK_N, BLOCK_REST, RESTS,
    )  # fmt: skip
    merged, whole = _with_those_alone(
        rows, keys, values, length, parts, mixed, shared, highest, total,
        key_column, value_column, softcap, scale, strength, HEAD, BLOCK_D, CAPPED, CLOSED, MIXES,
    )  # fmt: skip
    whole = tl.where(content < 0, float("nan"), whole)  # padding between tokens: what would be computed is wrong
    merged = merged / whole[:, None]
    tl.store(place, merged.to(output.dtype.element_ty), mask=writes)


@triton.jit
def _over_content(
    rows, keys, values, content, basket_size, key_column, value_column, softcap, scale,
    HEAD: tl.constexpr, BLOCK_D: tl.constexpr, CAPPED: tl.constexpr, EVEN: tl.constexpr, IS_TILE: tl.constexpr,
    MIXES: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_REST: tl.constexpr, RESTS: tl.constexpr,
):  # fmt: skip
    """The number of baskets, and the content in two sums: plain, and of the baskets' own outputs."""
    if IS_TILE:
        parts = (content + BLOCK_N - 1) // BLOCK_N
        mixed, shared, highest, total = _over_tiles(
            rows, keys, values, content, key_column, value_column, softcap, scale,
            HEAD, BLOCK_D, CAPPED, MIXES, BLOCK_M, BLOCK_N,
        )  # fmt: skip
    else:
        if EVEN:
            parts = tl.minimum(tl.maximum((2 * content + basket_size) // (2 * basket_size), 1), content).to(tl.int32)
        else:
            parts = ((content + basket_size - 1) // basket_size).to(tl.int32)
        mixed, shared, highest, total = _over_baskets(
            rows, keys, values, content, parts, basket_size, key_column, value_column,
            softcap, scale, HEAD, BLOCK_D, CAPPED, EVEN, MIXES, BLOCK_M, BLOCK_N, BLOCK_REST, RESTS,
        )  # fmt: skip
    return parts, mixed, shared, highest, total


@triton.jit
def _with_those_alone(
    rows, keys, values, length, parts, mixed, shared, highest, total,
    key_column, value_column, softcap, scale, strength,
    HEAD: tl.constexpr, BLOCK_D: tl.constexpr, CAPPED: tl.constexpr, CLOSED: tl.constexpr, MIXES: tl.constexpr,
):  # fmt: skip
    """The content, each basket with its share, and the tokens that stand alone; and the mass of all of them."""
    dims = tl.arange(0, BLOCK_D)
    in_head = dims < HEAD
    first_score, first_value = _alone(rows, keys, values, dims, in_head, softcap, scale, CAPPED)
    base = tl.maximum(highest, first_score)
    if CLOSED:
        last = tl.where(length > 1, length - 1, 0)
        last_score, last_value = _alone(
            rows, keys + last * key_column, values + last * value_column, dims, in_head, softcap, scale, CAPPED
        )
        last_score = tl.where(length > 1, last_score, -float("inf"))
        base = tl.maximum(base, last_score)
    rescale = tl.exp2(highest - base)
    first_part = tl.exp2(first_score - base)
    whole = total * rescale + first_part
    merged = first_part[:, None] * first_value[None, :]
    if CLOSED:
        last_part = tl.exp2(last_score - base)
        whole += last_part
        merged += last_part[:, None] * last_value[None, :]
    merged += shared * (strength * total * rescale / tl.maximum(parts, 1)).to(tl.float32)[:, None]
    if MIXES:
        merged += mixed * ((1.0 - strength) * rescale).to(tl.float32)[:, None]
    return merged, whole


@triton.jit
def _over_tiles(
    rows, keys, values, content, key_column, value_column, softcap, scale,
    HEAD: tl.constexpr, BLOCK_D: tl.constexpr, CAPPED: tl.constexpr, MIXES: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """The content, plain and as the sum of its baskets' own outputs, where every basket but the last is a tile."""
    mixed = tl.zeros([BLOCK_M, BLOCK_D], dtype=tl.float32)
    shared = tl.zeros([BLOCK_M, BLOCK_D], dtype=tl.float32)
    highest = tl.full([BLOCK_M], -float("inf"), dtype=tl.float32)
    total = tl.zeros([BLOCK_M], dtype=tl.float32)
    full = content // BLOCK_N
    for _ in range(full):
        summit, weight, outputs = _tile(
            rows, keys, values, BLOCK_N, key_column, value_column, softcap, scale,
            HEAD, BLOCK_D, CAPPED, MASKED=False, BLOCK_N=BLOCK_N,
        )  # fmt: skip
        mixed, shared, highest, total = _add(mixed, shared, highest, total, summit, weight, outputs, MIXES)
        keys += BLOCK_N * key_column
        values += BLOCK_N * value_column
    left = content - full * BLOCK_N
    if left > 0:
        summit, weight, outputs = _tile(
            rows, keys, values, left, key_column, value_column, softcap, scale,
            HEAD, BLOCK_D, CAPPED, MASKED=True, BLOCK_N=BLOCK_N,
        )  # fmt: skip
        mixed, shared, highest, total = _add(mixed, shared, highest, total, summit, weight, outputs, MIXES)
    return mixed, shared, highest, total


@triton.jit
def _over_baskets(
    rows, keys, values, content, parts, basket_size, key_column, value_column, softcap, scale,
    HEAD: tl.constexpr, BLOCK_D: tl.constexpr, CAPPED: tl.constexpr, EVEN: tl.constexpr, MIXES: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_REST: tl.constexpr,
    RESTS: tl.constexpr,
):  # fmt: skip
    """The same where a basket is a part of a tile, or takes several: a large one, and others for the rest."""
    mixed = tl.zeros([BLOCK_M, BLOCK_D], dtype=tl.float32)
    shared = tl.zeros([BLOCK_M, BLOCK_D], dtype=tl.float32)
    highest = tl.full([BLOCK_M], -float("inf"), dtype=tl.float32)
    total = tl.zeros([BLOCK_M], dtype=tl.float32)
    end = content * 0
    for number in range(parts):
        start = end
        if EVEN:
            end = ((number + 1) * content + parts - 1) // parts
        else:
            end = tl.minimum(start + basket_size, content).to(tl.int32)
        summit, weight, outputs = _tile(
            rows, keys + start * key_column, values + start * value_column, end - start, key_column, value_column,
            softcap, scale, HEAD, BLOCK_D, CAPPED, MASKED=True, BLOCK_N=BLOCK_N,
        )  # fmt: skip
        if RESTS <= _FEW:  # a loop in the loop would keep the outer one from loading ahead
            for number_of_rest in tl.static_range(RESTS):
                at = start + BLOCK_N + number_of_rest * BLOCK_REST
                if at < end:
                    summit, weight, outputs = _more(
                        rows, keys, values, at, end, key_column, value_column, softcap, scale, summit, weight, outputs,
                        HEAD, BLOCK_D, CAPPED, BLOCK_REST,
                    )  # fmt: skip
        else:
            for at in range(start + BLOCK_N, end, BLOCK_REST):
                summit, weight, outputs = _more(
                    rows, keys, values, at, end, key_column, value_column, softcap, scale, summit, weight, outputs,
                    HEAD, BLOCK_D, CAPPED, BLOCK_REST,
                )  # fmt: skip
        mixed, shared, highest, total = _add(mixed, shared, highest, total, summit, weight, outputs, MIXES)
    return mixed, shared, highest, total


@triton.jit
def _more(
    rows, keys, values, at, end, key_column, value_column, softcap, scale, summit, weight, outputs,
    HEAD: tl.constexpr, BLOCK_D: tl.constexpr, CAPPED: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """A basket with a further tile."""
    more_summit, more_weight, more_outputs = _tile(
        rows, keys + at * key_column, values + at * value_column, end - at, key_column, value_column,
        softcap, scale, HEAD, BLOCK_D, CAPPED, MASKED=True, BLOCK_N=BLOCK_N,
    )  # fmt: skip
    higher = tl.maximum(summit, more_summit)
    before, now = tl.exp2(summit - higher), tl.exp2(more_summit - higher)
    return higher, weight * before + more_weight * now, outputs * before[:, None] + more_outputs * now[:, None]


@triton.jit
def _tile(
    rows, keys, values, count, key_column, value_column, softcap, scale,
    HEAD: tl.constexpr, BLOCK_D: tl.constexpr, CAPPED: tl.constexpr, MASKED: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """Attention to a tile of so many keys: the highest score of each row, its sum of weights relative to that, its outputs."""
    dims = tl.arange(0, BLOCK_D)
    here = tl.arange(0, BLOCK_N)
    key_places = keys + (here[None, :] * key_column + dims[:, None])
    value_places = values + (here[:, None] * value_column + dims[None, :])
    if MASKED:
        own_keys = tl.load(key_places, mask=(here < count)[None, :] & (dims < HEAD)[:, None], other=0.0)
        own_values = tl.load(value_places, mask=(here < count)[:, None] & (dims < HEAD)[None, :], other=0.0)
    elif HEAD == BLOCK_D:
        own_keys, own_values = tl.load(key_places), tl.load(value_places)
    else:
        own_keys = tl.load(key_places, mask=(dims < HEAD)[:, None], other=0.0)
        own_values = tl.load(value_places, mask=(dims < HEAD)[None, :], other=0.0)
    products, factor = _scaled(tl.dot(rows, own_keys, input_precision="ieee"), softcap, scale, CAPPED)
    if MASKED:
        products = tl.where((here < count)[None, :], products, -float("inf"))
    summit = (tl.max(products, axis=1) * factor).to(tl.float32)
    weights = tl.exp2((products * factor - summit[:, None]).to(tl.float32))
    outputs = tl.dot(weights.to(own_values.dtype), own_values, input_precision="ieee")
    return summit, tl.sum(weights, axis=1), outputs


@triton.jit
def _add(mixed, shared, highest, total, summit, weight, outputs, MIXES: tl.constexpr):
    """Take in a basket: its own output to the shared sum, and with a common base its mass to the plain one."""
    shared += outputs * (1.0 / weight)[:, None]
    higher = tl.maximum(highest, summit)
    before, now = tl.exp2(highest - higher), tl.exp2(summit - higher)
    if MIXES:
        mixed = mixed * before[:, None] + outputs * now[:, None]
    return mixed, shared, higher, total * before + weight * now


@triton.jit
def _alone(rows, keys, values, dims, in_head, softcap, scale, CAPPED: tl.constexpr):
    """The scores of one token under all rows, and its value."""
    own = tl.load(keys + dims, mask=in_head, other=0.0).to(tl.float32)
    products, factor = _scaled(tl.sum(rows.to(tl.float32) * own[None, :], axis=1), softcap, scale, CAPPED)
    return (products * factor).to(tl.float32), tl.load(values + dims, mask=in_head, other=0.0).to(tl.float32)


@triton.jit
def _scaled(products, softcap, scale, CAPPED: tl.constexpr):
    """Products of queries and keys, and the factor (above 0) that makes of them exponents of two."""
    if CAPPED:
        capped = tl.sigmoid((2.0 * products * (scale / softcap)).to(tl.float32))
        return (2.0 * capped - 1.0).to(tl.float32), softcap * 1.4426950408889634  # tanh
    return products, scale * 1.4426950408889634
