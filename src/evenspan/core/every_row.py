"""Attention of mean-pooled models: every row is calibrated, not one.

A row keeps what it gives the isolated tokens (the first one, and a special token at the end), and its content baskets share
the rest equally: `soft`, without a self-mass, since a row's own token is content like any other. With `o_j` the attention
output over basket `j` alone and `m_j` its mass, the row is `isolated part + Σ w_j o_j`, where `w_j` lies between `m_j` and
the mean of all `m_j` as the strength says. So one attention over each basket is all it takes, and no matrix of attention is
ever made. On a CUDA device one fused kernel does it, everywhere else, sequence by sequence, PyTorch.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import torch
from torch import Tensor

from evenspan.calibration import Calibration
from evenspan.core.baskets import CONTENT, FIRST, POOLED, Baskets, SequenceTokens
from evenspan.core.triton import fuses

_AT_ONCE = 2**22  # numbers that the outputs of all baskets for a block of rows may have


def calibrated_every_row(
    query: Tensor,  # (batch, heads, tokens, head_dim)
    key: Tensor,  # (batch, key_value_heads, tokens, head_dim)
    value: Tensor,
    baskets: Baskets,
    calibration: Calibration,
    scale: float,
    softcap: float | None = None,
) -> Tensor:
    """What every token gets out of its attention; nothing for padding.  # (batch, tokens, heads, head_dim)

    Sequences that are too short to be calibrated get what they always get.
    """
    if fuses(query, key, value):
        return fused_every_row(query, key, value, baskets, calibration, scale, softcap)
    parts = torch.zeros_like(query.transpose(1, 2), memory_format=torch.contiguous_format)
    for sequence in baskets.sequences:
        strength = calibration.strength if sequence.active else 0.0
        rows = [
            _mixed(masses, outputs, value, sequence, strength)
            for masses, outputs in _attended(query, key, value, sequence, scale, softcap)
        ]
        if rows:
            whole = torch.cat(rows, dim=1).transpose(0, 1).to(query.dtype)  # (tokens, heads, head_dim)
            parts[sequence.row][sequence.tokens] = whole
    return parts


def fused_every_row(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    baskets: Baskets,
    calibration: Calibration,
    scale: float,
    softcap: float | None,
) -> Tensor:
    """The same by the fused kernel."""
    from evenspan.core.triton.every_row import launch

    cut = calibration.basket_size, calibration.partition == "even"
    layout = baskets.longest, baskets.packed, baskets.closed
    return launch(query, key, value, baskets.spans, cut, layout, calibration.strength, scale, softcap)


def every_row_masses(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    baskets: Baskets,
    calibration: Calibration | None,
    scale: float,
    softcap: float | None = None,
) -> Tensor:
    """What each basket gets of the attention of a sequence's tokens, on average.  # (heads, rows, 2 + baskets)"""
    heads, (rows, columns) = query.shape[1], baskets.present.shape
    means = torch.zeros(heads, rows, columns, device=query.device)
    for sequence in baskets.sequences:
        strength = calibration.strength if calibration is not None and sequence.active else 0.0
        total = sum(
            torch.cat([masses[..., : sequence.isolated], _shared(masses, sequence, strength)], dim=-1).sum(dim=1)
            for masses, _ in _attended(query, key, value, sequence, scale, softcap)
        )
        places = (
            [FIRST, POOLED] if sequence.isolated == 2 else [POOLED]
        )  # without a closing token the first is the pooled
        places += range(CONTENT, CONTENT + len(sequence.edges) - 1)
        means[:, sequence.number, places] = total / max(sequence.length, 1)
    return means


def _attended(
    query: Tensor, key: Tensor, value: Tensor, sequence: SequenceTokens, scale: float, softcap: float | None
) -> Iterator[tuple[Tensor, list[Tensor]]]:
    """For blocks of the rows of a sequence: the mass of each isolated token and basket, and the output of each basket.

    Both have the heads first: (heads, rows, isolated + baskets) and, basket by basket, (heads, rows, head_dim).
    """
    queries, keys, values = (states[sequence.row][:, sequence.tokens] for states in (query, key, value))
    heads, length, size = queries.shape
    groups = keys.shape[0]
    at_once = max(64, _AT_ONCE // (heads * size * max(1, len(sequence.edges) - 1)))
    alone = [0, -1][: sequence.isolated]
    for start in range(0, length, at_once):
        # The heads of a group are further rows of it.
        rows = queries[:, start : start + at_once].reshape(groups, -1, size)
        log_masses = [_scores(rows, keys[:, alone], scale, softcap)]
        outputs = []
        for first, end in pairwise(sequence.edges):
            output, log_mass = _basket(rows, keys[:, first:end], values[:, first:end], scale, softcap)
            outputs.append(output.view(heads, -1, size))
            log_masses.append(log_mass.unsqueeze(-1))
        masses = torch.softmax(torch.cat(log_masses, dim=-1), dim=-1)
        yield masses.view(heads, -1, masses.shape[-1]), outputs


def _scores(rows: Tensor, keys: Tensor, scale: float, softcap: float | None) -> Tensor:
    scores = (rows.float() * scale) @ keys.float().transpose(-1, -2)
    return scores if softcap is None else torch.tanh(scores / softcap) * softcap


def _basket(rows: Tensor, keys: Tensor, values: Tensor, scale: float, softcap: float | None) -> tuple[Tensor, Tensor]:
    """Attention over one basket alone, and its log mass.  # (groups, rows, head_dim), (groups, rows)"""
    needs_gradient = torch.is_grad_enabled() and (rows.requires_grad or keys.requires_grad or values.requires_grad)
    if rows.device.type == "cpu" and softcap is None and not needs_gradient:
        # What `scaled_dot_product_attention` runs on a CPU, which keeps the log mass to itself.
        fused = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
        output, log_mass = fused(rows.unsqueeze(0), keys.unsqueeze(0), values.unsqueeze(0), scale=scale)
        return output.squeeze(0).float(), log_mass.squeeze(0).float()
    scores = _scores(rows, keys, scale, softcap)
    return torch.softmax(scores, dim=-1) @ values.float(), scores.logsumexp(dim=-1)


def _shared(masses: Tensor, sequence: SequenceTokens, strength: float) -> Tensor:
    """What each basket gets once they share.  # (heads, rows, baskets)"""
    content = masses[..., sequence.isolated :]
    return torch.lerp(content, content.mean(dim=-1, keepdim=True).expand_as(content), strength)


def _mixed(masses: Tensor, outputs: list[Tensor], value: Tensor, sequence: SequenceTokens, strength: float) -> Tensor:
    """The calibrated rows from the outputs of their baskets.  # (heads, rows, head_dim)"""
    alone = [0, -1][: sequence.isolated]
    isolated = value[sequence.row][:, sequence.tokens][:, alone].float()  # (groups, isolated, head_dim)
    repeated = isolated.repeat_interleave(masses.shape[0] // isolated.shape[0], dim=0)
    mixed = masses[..., : sequence.isolated] @ repeated
    weights = _shared(masses, sequence, strength)
    for number, output in enumerate(outputs):
        mixed = torch.addcmul(mixed, output, weights[..., number : number + 1])
    return mixed
