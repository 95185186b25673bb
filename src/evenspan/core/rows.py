"""The attention outputs of the pooled rows, calibrated, from queries, keys and values: one function chooses how.

On a CUDA device two fused kernels do it, everywhere else (and as their reference) plain PyTorch. Both compute in float32.
"""

from __future__ import annotations

import torch
from torch import Tensor

from evenspan.calibration import Calibration
from evenspan.core.baskets import Baskets
from evenspan.core.redistribute import basket_log_masses, redistribute, rules_of, spread
from evenspan.core.triton import fuses


def calibrated_rows(
    query: Tensor,  # (rows, heads, head_dim), of the pooling tokens
    key: Tensor,  # (batch, key_value_heads, keys, head_dim)
    value: Tensor,
    baskets: Baskets,
    calibration: Calibration,
    scale: float,
    softcap: float | None = None,
) -> Tensor:
    """What each pooling token gets out of its attention.  # (rows, heads, head_dim)

    Rows that are too short to be calibrated get what they always get.
    """
    if fuses(query, key, value):
        return fused_rows(query.unsqueeze(2), key, value, baskets, calibration, scale, softcap).squeeze(1)
    with torch.autocast(query.device.type, enabled=False):  # float32 means float32
        weights = redistribute(pooled_scores(query, key, baskets, scale, softcap), baskets, calibration)
        return weighted_values(weights, value, baskets).to(query.dtype)


def replace_rows(
    output: Tensor,  # (batch, queries, heads, head_dim)
    query: Tensor,  # (batch, heads, queries, head_dim)
    key: Tensor,  # (batch, key_value_heads, keys, head_dim)
    value: Tensor,
    baskets: Baskets,
    calibration: Calibration,
    scale: float,
    softcap: float | None = None,
) -> Tensor:
    """An attention output with the rows of active sequences calibrated; the others keep theirs, bit for bit."""
    if fuses(query, key, value) and output.dtype == query.dtype and output.stride(-1) == 1:
        return fused_rows(query, key, value, baskets, calibration, scale, softcap, output)
    rows = calibrated_rows(pooled_query(query, baskets), key, value, baskets, calibration, scale, softcap)
    flat = output.reshape(-1, *output.shape[2:])  # (batch * queries, heads, head_dim)
    # A packed text without tokens has another text's position, where that text's row must stand.
    owner = baskets.row_of_key[baskets.pooled]
    replaced = baskets.active[owner] & (baskets.pooled == baskets.pooled[owner])
    chosen = torch.where(replaced.view(-1, 1, 1), rows[owner].to(output.dtype), flat[baskets.pooled])
    if torch.is_grad_enabled() and output.requires_grad:
        flat = flat.index_copy(0, baskets.pooled, chosen)  # autograd may still need the plain output
    else:
        flat.index_copy_(0, baskets.pooled, chosen)
    return flat.view(output.shape)


def fused_rows(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    baskets: Baskets,
    calibration: Calibration,
    scale: float,
    softcap: float | None,
    output: Tensor | None = None,
) -> Tensor:
    """The calibrated rows by the fused kernels: over those of `output`, or by themselves."""
    from evenspan.core.triton.rows import launch

    rules = (calibration.strength, *rules_of(calibration))
    return launch(query, key, value, baskets.geometry, rules, scale, softcap, output)


def plain_rows(scores: Tensor, value: Tensor, baskets: Baskets) -> Tensor:
    """The same without calibration, from the scores.  # (rows, heads, head_dim)"""
    log_masses = basket_log_masses(scores, baskets)
    return weighted_values(spread(scores, log_masses, torch.softmax(log_masses, dim=-1), baskets), value, baskets)


def pooled_query(query: Tensor, baskets: Baskets) -> Tensor:
    """The queries of the pooling tokens out of those of all tokens.  # (rows, heads, head_dim)"""
    columns = query.shape[2]
    return query[baskets.pooled // columns, :, baskets.pooled % columns]


def pooled_scores(query: Tensor, key: Tensor, baskets: Baskets, scale: float, softcap: float | None) -> Tensor:
    """Scores of all keys under the pooling token of their own sequence, in float32.  # (heads, keys of the batch)"""
    rows, heads, size = query.shape
    batch, groups, columns, _ = key.shape
    pooled = (query.float() * scale).view(rows, groups, heads // groups, size)
    if baskets.packed:
        keys = key.float().view(groups, columns, size).transpose(0, 1)  # (keys, groups, head_dim)
        scores = torch.einsum("kghd,kgd->ghk", pooled[baskets.row_of_key], keys).reshape(heads, columns)
    else:
        scores = pooled @ key.float().transpose(-1, -2)
        scores = scores.reshape(batch, heads, columns).transpose(0, 1).reshape(heads, batch * columns)
    return scores if softcap is None else torch.tanh(scores / softcap) * softcap


def weighted_values(weights: Tensor, value: Tensor, baskets: Baskets) -> Tensor:
    """The pooled rows' attention outputs from their weights, in float32.  # (rows, heads, head_dim)"""
    batch, groups, columns, size = value.shape
    heads = weights.shape[0]
    if baskets.packed:
        values = value.float().view(groups, columns, size)
        each = torch.einsum("ghk,gkd->kghd", weights.view(groups, heads // groups, columns), values)
        rows = torch.zeros(baskets.pooled.shape[0], heads, size, device=value.device)
        return rows.index_add(0, baskets.row_of_key, each.reshape(columns, heads, size))
    per_row = weights.view(heads, batch, columns).transpose(0, 1).reshape(batch, groups, heads // groups, columns)
    return (per_row @ value.float()).reshape(batch, heads, size)
