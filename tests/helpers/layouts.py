"""Batches of random sequences in every layout, and scores as extreme as they come."""

from __future__ import annotations

import itertools
import random
from typing import Any

import torch

LAYOUTS = ("right", "left", "packed")
SCORES = ("usual", "one key", "underflow", "sink")


def extreme(scores: str, row: torch.Tensor, key: torch.Tensor, basket_size: int, pick: random.Random) -> None:
    """Change the keys (groups, keys, head_dim) of a sequence so that a row of queries (heads, head_dim) has extreme scores."""
    groups, length, size = key.shape
    direction = row.view(groups, -1, size).mean(dim=1)  # what all heads of a group look for
    unit = direction / direction.norm(dim=-1, keepdim=True)
    if scores == "one key":
        key[:, pick.randrange(length)] += 60 * unit
    elif scores == "underflow":  # a run of keys with no mass left at all
        key[:, length // 3 : length // 3 + basket_size] -= 400 * unit[:, None]
    elif scores == "sink":
        key[:, 0] += 8 * unit


def batch(tensors: list[torch.Tensor], layout: str) -> torch.Tensor:
    """Sequences of (heads, tokens, head_dim) as one padded or packed (batch, heads, tokens, head_dim) tensor."""
    if layout == "packed":
        return torch.cat(tensors, dim=1).unsqueeze(0)
    longest = max(tensor.shape[1] for tensor in tensors)
    # Padding holds large values: a result that looks at it cannot pass.
    padded = torch.full((len(tensors), tensors[0].shape[0], longest, tensors[0].shape[2]), 50.0, dtype=tensors[0].dtype)
    for row, tensor in enumerate(tensors):
        start = 0 if layout == "right" else longest - tensor.shape[1]
        padded[row, :, start : start + tensor.shape[1]] = tensor
    return padded


def layout_of(lengths: list[int], layout: str) -> dict[str, Any]:
    """What a model is told of where the tokens of a batch are."""
    longest, column = max(lengths), torch.arange(max(lengths))
    if layout == "packed":
        cumulative = torch.tensor([0, *itertools.accumulate(lengths)], dtype=torch.int32)
        tokens = torch.zeros(1, sum(lengths), dtype=torch.long)
        return {"input_ids": tokens, "cu_seq_lens_q": cumulative, "max_length_q": longest}
    length = torch.tensor(lengths).unsqueeze(1)
    mask = (column < length if layout == "right" else column >= longest - length).long()
    return {"input_ids": mask, "attention_mask": mask}
