"""The pooled rows as split-K attention whose splits are the baskets.

`basket_partials` computes each content basket's attention output and log mass; `merge` turns the masses into calibrated
weights, as `evenspan.core.redistribute` does, and adds up. All arithmetic is in float32: numbers that a caller
passes may come as float64, from a compiler, and are brought back. Names in capitals are constants that
a kernel is compiled for; of lengths only powers of two are, so that few variants are ever compiled.
"""

import triton
import triton.language as tl

# What differs from batch to batch: a kernel is not compiled anew for these.
VARYING = ["columns", "baskets", "heads_per_group"]


@triton.jit
def _capped(scores, softcap, CAPPED: tl.constexpr):
    if CAPPED:
        capped = tl.sigmoid((2.0 * scores / softcap).to(tl.float32))
        scores = ((2.0 * capped - 1.0) * softcap).to(tl.float32)  # tanh
    return scores


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


@triton.jit(do_not_specialize=VARYING)
def basket_partials(
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


@triton.jit(do_not_specialize=VARYING)
def merge(
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
    in_head = dims < HEAD
    place = tl.load(pooled_at + row)
    pooled = _load_query(
        query, place, row, head, query_batch, query_head, query_column, columns, scale, HEAD, BLOCK_D, ROWS_ONLY
    )

    # The two tokens that stand alone: their scores are their log masses, their values their outputs.
    has_pooled = tl.load(present_at + row * (baskets + 2)) != 0
    has_first = tl.load(present_at + row * (baskets + 2) + 1) != 0
    pooled_dims = tl.where(has_pooled, HEAD, 0)
    first_dims = tl.where(has_first, HEAD, 0)
    at = key + (place // columns) * key_batch + group * key_head + (place % columns) * key_column
    own = tl.load(at + dims, mask=dims < pooled_dims, other=0.0).to(tl.float32)
    pooled_score = tl.where(has_pooled, _capped(tl.sum(own * pooled), softcap, CAPPED), -float("inf"))
    at = value + (place // columns) * value_batch + group * value_head + (place % columns) * value_column
    pooled_value = tl.load(at + dims, mask=dims < pooled_dims, other=0.0).to(tl.float32)
    first = tl.load(first_at + row, mask=has_first, other=0)
    at = key + (first // columns) * key_batch + group * key_head + (first % columns) * key_column
    own = tl.load(at + dims, mask=dims < first_dims, other=0.0).to(tl.float32)
    first_score = tl.where(has_first, _capped(tl.sum(own * pooled), softcap, CAPPED), -float("inf"))
    at = value + (first // columns) * value_batch + group * value_head + (first % columns) * value_column
    first_value = tl.load(at + dims, mask=dims < first_dims, other=0.0).to(tl.float32)

    partial = (row * tl.num_programs(0) + head) * baskets
    basket = tl.arange(0, BLOCK_BASKETS)
    content = tl.load(log_masses + partial + basket, mask=basket < baskets, other=-float("inf"))
    highest = tl.maximum(tl.max(content, axis=0), tl.maximum(pooled_score, first_score))
    highest = tl.where(highest == -float("inf"), 0.0, highest)
    total = tl.sum(tl.exp(content - highest), axis=0) + tl.exp(pooled_score - highest) + tl.exp(first_score - highest)
    total = tl.where(total == 0.0, 1.0, total)
    pooled_now = tl.exp(pooled_score - highest) / total
    first_now = tl.exp(first_score - highest) / total

    # Targets: the fixed masses first, the others share the rest equally.
    pooled_fixed = pooled_keeps * pooled_now + pooled_mass
    first_fixed = first_keeps * first_now + tl.where(has_first, first_mass, 0.0)
    pooled_sharing = tl.where(has_pooled, pooled_shares, 0.0)
    first_sharing = tl.where(has_first, first_shares, 0.0)
    sharing = tl.sum((content > -float("inf")).to(tl.float32), axis=0) + pooled_sharing + first_sharing
    taken = pooled_fixed + first_fixed
    excess = tl.maximum(taken, 1.0)
    share = tl.maximum(1.0 - taken, 0.0) / tl.maximum(sharing, 1.0) / excess
    pooled_target = pooled_fixed / excess + pooled_sharing * share
    first_target = first_fixed / excess + first_sharing * share
    active = tl.load(active_at + row) != 0
    mix = tl.where(active, strength, 0.0).to(tl.float32)  # a row that is too short stays as it is

    merged = (mix * pooled_target + (1.0 - mix) * pooled_now) * pooled_value
    merged += (mix * first_target + (1.0 - mix) * first_now) * first_value
    merged = merged.to(tl.float32)
    for start in range(0, BLOCK_BASKETS, CHUNK):
        some = start + tl.arange(0, CHUNK)
        log_mass = tl.load(log_masses + partial + some, mask=some < baskets, other=-float("inf"))
        weight = mix * share + (1.0 - mix) * tl.exp(log_mass - highest) / total
        weight = tl.where(log_mass > -float("inf"), weight, 0.0).to(tl.float32)
        outputs = tl.load(
            partials + ((partial + some) * HEAD)[:, None] + dims[None, :],
            mask=(some < baskets)[:, None] & in_head[None, :],
            other=0.0,
        )
        merged += tl.sum(outputs * weight[:, None], axis=0)
    if ROWS_ONLY:
        at = output + row * output_batch + head * output_head
        tl.store(at + dims, merged.to(output.dtype.element_ty), mask=in_head)
    else:
        at = output + (place // columns) * output_batch + (place % columns) * output_column + head * output_head
        tl.store(at + dims, merged.to(output.dtype.element_ty), mask=dims < tl.where(active, HEAD, 0))
