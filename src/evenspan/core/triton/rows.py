"""The pooled rows of one layer in two launches: split-K attention whose splits are the baskets.

`_basket_partials` computes each content basket's attention output and log mass; `_merge` turns the masses into calibrated
weights, as `evenspan.core.redistribute` does, and adds up. All arithmetic is in float32: numbers that a caller passes may
come as float64, from a compiler, and are brought back. Strides and sizes are arguments and no shape depends on the data,
so nothing waits for the device. Names in capitals are constants that a kernel is compiled for; of lengths only powers of
two are, so that few variants are ever compiled.
"""

# No postponed annotations: Triton reads those of its kernels.
import torch
import triton
import triton.language as tl
from torch import Tensor

from evenspan.core.triton.launch import relaunch

# What differs from batch to batch: a kernel is not compiled anew for these.
_VARYING = ["columns", "baskets", "heads_per_group"]
_FEW_BASKETS = 64  # one variant for all texts of up to 8,192 tokens: compiling takes longer than the empty lanes


def launch(
    query: Tensor,  # (batch, heads, queries, head_dim)
    key: Tensor,  # (batch, key_value_heads, keys, head_dim)
    value: Tensor,
    geometry: tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor],  # as `evenspan.core.triton.geometry` returns it
    rules: tuple[float, ...],  # the strength, and what `evenspan.core.redistribute.rules_of` says
    scale: float,
    softcap: float | None,
    output: Tensor | None,  # (batch, queries, heads, head_dim)
) -> Tensor:
    """Write the calibrated rows of active sequences over those of `output`, in place.

    Without an output, `query` holds the pooling tokens alone, a row each, and so does what is returned, whether a
    sequence is active or not.  # (rows, 1, heads, head_dim)
    """
    pooled, first, slots, filled, present, active = geometry
    rows, baskets, slots_each = slots.shape
    _, heads, _, size = query.shape
    _, groups, columns, _ = key.shape
    target = torch.empty(rows, 1, heads, size, dtype=query.dtype, device=key.device) if output is None else output
    strides = (*query.stride()[:3], *key.stride()[:3], *value.stride()[:3], *target.stride()[:3])
    partials = torch.empty(rows, heads, baskets, size, dtype=torch.float32, device=key.device)
    log_masses = torch.empty(rows, heads, baskets, dtype=torch.float32, device=key.device)
    cap = 1.0 if softcap is None else float(softcap)
    block_baskets = triton.next_power_of_2(max(baskets, _FEW_BASKETS))
    numbers = (cap, float(scale), columns, baskets, heads // groups)
    constants = (size, max(16, triton.next_power_of_2(size)), softcap is not None, output is None)
    relaunch(
        _basket_partials,
        (heads, baskets, rows),
        (query, key, value, pooled, slots, filled, partials, log_masses),
        strides[:9],
        numbers,
        (*constants, slots_each, min(128, triton.next_power_of_2(max(slots_each, 2)))),
        num_warps=4,
    )
    relaunch(
        _merge,
        (heads, rows, 1),
        (query, key, value, target, pooled, first, present, active, partials, log_masses),
        strides,
        (*numbers, *rules),
        (*constants, block_baskets, min(16, block_baskets)),
        num_warps=2,
    )
    return target


@triton.jit(do_not_specialize=_VARYING)
def _basket_partials(
    query, key, value, pooled_at, slots, filled, partials, log_masses,
    query_batch, query_head, query_column,
    key_batch, key_head, key_column,
    value_batch, value_head, value_column,
    softcap, scale, columns, baskets, heads_per_group,
    HEAD: tl.constexpr, BLOCK_D: tl.constexpr, CAPPED: tl.constexpr, ROWS_ONLY: tl.constexpr,
    SLOTS: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    head = tl.program_id(0).to(tl.int64)
    basket = tl.program_id(1)
    row = tl.program_id(2).to(tl.int64)
    group = head // heads_per_group
    dims = tl.arange(0, BLOCK_D)
    in_head = dims < HEAD
    place = tl.load(pooled_at + row)
    pooled = _load_query(
        query, place, row, head, query_batch, query_head, query_column, columns, scale, HEAD, BLOCK_D, ROWS_ONLY
    )
    own_slots = (row * baskets + basket) * SLOTS
    highest = -float("inf")
    total = 0.0
    merged = tl.zeros([BLOCK_D], dtype=tl.float32)
    for start in range(0, SLOTS, BLOCK_N):
        slot = start + tl.arange(0, BLOCK_N)
        inside = slot < SLOTS
        inside = inside & (tl.load(filled + own_slots + slot, mask=inside, other=0) != 0)
        slot_place = tl.load(slots + own_slots + slot, mask=inside, other=0)
        batch, column = slot_place // columns, slot_place % columns
        wanted = inside[:, None] & in_head[None, :]
        keys = tl.load(
            key + (batch * key_batch + group * key_head + column * key_column)[:, None] + dims[None, :],
            mask=wanted,
            other=0.0,
        ).to(tl.float32)
        values = tl.load(
            value + (batch * value_batch + group * value_head + column * value_column)[:, None] + dims[None, :],
            mask=wanted,
            other=0.0,
        ).to(tl.float32)
        scores = _capped(tl.sum(keys * pooled[None, :], axis=1), softcap, CAPPED)
        scores = tl.where(inside, scores, -float("inf"))
        higher = tl.maximum(highest, tl.max(scores, axis=0))
        base = tl.where(higher == -float("inf"), 0.0, higher)  # nothing so far: no NaN from -inf - -inf
        weights = tl.exp(scores - base)
        rescale = tl.exp(highest - base)
        merged = merged * rescale + tl.sum(values * weights[:, None], axis=0)
        total = total * rescale + tl.sum(weights, axis=0)
        highest = higher
    partial = (row * tl.num_programs(0) + head) * baskets + basket
    present = total > 0.0
    tl.store(partials + partial * HEAD + dims, merged / tl.where(present, total, 1.0), mask=in_head)
    tl.store(log_masses + partial, tl.where(present, highest + tl.log(tl.where(present, total, 1.0)), -float("inf")))


@triton.jit(do_not_specialize=_VARYING)
def _merge(
    query, key, value, output, pooled_at, first_at, present_at, active_at, partials, log_masses,
    query_batch, query_head, query_column,
    key_batch, key_head, key_column,
    value_batch, value_head, value_column,
    output_batch, output_column, output_head,
    softcap, scale, columns, baskets, heads_per_group,
    strength, pooled_keeps, pooled_mass, pooled_shares, first_keeps, first_mass, first_shares,
    HEAD: tl.constexpr, BLOCK_D: tl.constexpr, CAPPED: tl.constexpr, ROWS_ONLY: tl.constexpr,
    BLOCK_BASKETS: tl.constexpr, CHUNK: tl.constexpr,
):  # fmt: skip
    head = tl.program_id(0).to(tl.int64)
    row = tl.program_id(1).to(tl.int64)
    group = head // heads_per_group
    dims = tl.arange(0, BLOCK_D)
    place = tl.load(pooled_at + row)
    pooled = _load_query(
        query, place, row, head, query_batch, query_head, query_column, columns, scale, HEAD, BLOCK_D, ROWS_ONLY
    )
    has_pooled = tl.load(present_at + row * (baskets + 2)) != 0
    has_first = tl.load(present_at + row * (baskets + 2) + 1) != 0
    pooled_score, pooled_value = _lone_token(
        key, value, place, has_pooled, pooled, dims, group, columns, softcap,
        key_batch, key_head, key_column, value_batch, value_head, value_column, HEAD, CAPPED,
    )  # fmt: skip
    first = tl.load(first_at + row, mask=has_first, other=0)
    first_score, first_value = _lone_token(
        key, value, first, has_first, pooled, dims, group, columns, softcap,
        key_batch, key_head, key_column, value_batch, value_head, value_column, HEAD, CAPPED,
    )  # fmt: skip

    partial = (row * tl.num_programs(0) + head) * baskets
    basket = tl.arange(0, BLOCK_BASKETS)
    content = tl.load(log_masses + partial + basket, mask=basket < baskets, other=-float("inf"))
    highest = tl.maximum(tl.max(content, axis=0), tl.maximum(pooled_score, first_score))
    highest = tl.where(highest == -float("inf"), 0.0, highest)
    total = tl.sum(tl.exp(content - highest), axis=0) + tl.exp(pooled_score - highest) + tl.exp(first_score - highest)
    total = tl.where(total == 0.0, 1.0, total)
    pooled_now = tl.exp(pooled_score - highest) / total
    first_now = tl.exp(first_score - highest) / total
    pooled_target, first_target, share = _targets(
        content, has_pooled, has_first, pooled_now, first_now,
        pooled_keeps, pooled_mass, pooled_shares, first_keeps, first_mass, first_shares,
    )  # fmt: skip
    active = tl.load(active_at + row) != 0
    mix = tl.where(active, strength, 0.0).to(tl.float32)  # a row that is too short stays as it is

    merged = (mix * pooled_target + (1.0 - mix) * pooled_now) * pooled_value
    merged += (mix * first_target + (1.0 - mix) * first_now) * first_value
    merged = _add_baskets(
        merged.to(tl.float32), partials, log_masses, partial, baskets, dims, mix, share, highest, total,
        HEAD, BLOCK_BASKETS, CHUNK,
    )  # fmt: skip
    if ROWS_ONLY:
        at = output + row * output_batch + head * output_head
        tl.store(at + dims, merged.to(output.dtype.element_ty), mask=dims < HEAD)
    else:
        at = output + (place // columns) * output_batch + (place % columns) * output_column + head * output_head
        tl.store(at + dims, merged.to(output.dtype.element_ty), mask=dims < tl.where(active, HEAD, 0))


@triton.jit
def _load_query(
    query, place, row, head, query_batch, query_head, query_column, columns, scale,
    HEAD: tl.constexpr, BLOCK_D: tl.constexpr, ROWS_ONLY: tl.constexpr,
):  # fmt: skip
    dims = tl.arange(0, BLOCK_D)
    if ROWS_ONLY:
        at = query + row * query_batch + head * query_head
    else:
        at = query + (place // columns) * query_batch + head * query_head + (place % columns) * query_column
    return (tl.load(at + dims, mask=dims < HEAD, other=0.0).to(tl.float32) * scale).to(tl.float32)


@triton.jit
def _capped(scores, softcap, CAPPED: tl.constexpr):
    if CAPPED:
        capped = tl.sigmoid((2.0 * scores / softcap).to(tl.float32))
        scores = ((2.0 * capped - 1.0) * softcap).to(tl.float32)  # tanh
    return scores


@triton.jit
def _lone_token(
    key, value, place, present, pooled, dims, group, columns, softcap,
    key_batch, key_head, key_column, value_batch, value_head, value_column,
    HEAD: tl.constexpr, CAPPED: tl.constexpr,
):  # fmt: skip
    """A token that is a basket of its own: its score is its log mass, its value its output."""
    present_dims = tl.where(present, HEAD, 0)
    at = key + (place // columns) * key_batch + group * key_head + (place % columns) * key_column
    own = tl.load(at + dims, mask=dims < present_dims, other=0.0).to(tl.float32)
    score = tl.where(present, _capped(tl.sum(own * pooled), softcap, CAPPED), -float("inf"))
    at = value + (place // columns) * value_batch + group * value_head + (place % columns) * value_column
    return score, tl.load(at + dims, mask=dims < present_dims, other=0.0).to(tl.float32)


@triton.jit
def _targets(
    content, has_pooled, has_first, pooled_now, first_now,
    pooled_keeps, pooled_mass, pooled_shares, first_keeps, first_mass, first_shares,
):  # fmt: skip
    """What the pooling token, the first token and each content basket get: fixed masses first, equal shares of the rest."""
    pooled_fixed = pooled_keeps * pooled_now + pooled_mass
    first_fixed = first_keeps * first_now + tl.where(has_first, first_mass, 0.0)
    pooled_sharing = tl.where(has_pooled, pooled_shares, 0.0)
    first_sharing = tl.where(has_first, first_shares, 0.0)
    sharing = tl.sum((content > -float("inf")).to(tl.float32), axis=0) + pooled_sharing + first_sharing
    taken = pooled_fixed + first_fixed
    excess = tl.maximum(taken, 1.0)
    share = tl.maximum(1.0 - taken, 0.0) / tl.maximum(sharing, 1.0) / excess
    return pooled_fixed / excess + pooled_sharing * share, first_fixed / excess + first_sharing * share, share


@triton.jit
def _add_baskets(
    merged, partials, log_masses, partial, baskets, dims, mix, share, highest, total,
    HEAD: tl.constexpr, BLOCK_BASKETS: tl.constexpr, CHUNK: tl.constexpr,
):  # fmt: skip
    """Add the outputs of the content baskets, each with its calibrated weight."""
    for start in range(0, BLOCK_BASKETS, CHUNK):
        basket = start + tl.arange(0, CHUNK)
        log_mass = tl.load(log_masses + partial + basket, mask=basket < baskets, other=-float("inf"))
        weight = mix * share + (1.0 - mix) * tl.exp(log_mass - highest) / total
        weight = tl.where(log_mass > -float("inf"), weight, 0.0).to(tl.float32)
        outputs = tl.load(
            partials + ((partial + basket) * HEAD)[:, None] + dims[None, :],
            mask=(basket < baskets)[:, None] & (dims < HEAD)[None, :],
            other=0.0,
        )
        merged += tl.sum(outputs * weight[:, None], axis=0)
    return merged
