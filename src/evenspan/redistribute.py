"""How attention is redistributed: pure tensor maths on the scores of the pooled rows, in float32.

Masses stay log-sum-exps and proportions are taken inside each basket, so a basket whose mass underflows still has its
proportions, and nothing is ever divided by a summed weight.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from evenspan.baskets import CONTENT, FIRST, POOLED, Baskets
from evenspan.calibration import Calibration


def redistribute(scores: Tensor, baskets: Baskets, calibration: Calibration) -> Tensor:
    """The calibrated attention of each sequence's pooling token over its keys.

    Args:
        scores: scaled scores before softmax, of each key under its own sequence's pooling token.  # (heads, keys)
        baskets: the geometry of the batch.
        calibration: how to spread the masses.

    Returns:
        Weights that sum to 1 over the keys of each sequence; 0 for padding.  # (heads, keys)
    """
    log_masses = basket_log_masses(scores, baskets)
    masses = torch.softmax(log_masses, dim=-1)
    targets = target_masses(masses, baskets.present, rules_of(calibration))
    return spread(scores, log_masses, blend(masses, targets, calibration.strength, baskets), baskets)


def blend(masses: Tensor, targets: Tensor, strength: float | Tensor, baskets: Baskets) -> Tensor:
    """As much of the way from masses to targets as the strength says; a sequence that is too short keeps its masses."""
    strength = strength * baskets.active.to(masses.dtype).unsqueeze(-1)
    return strength * targets + (1.0 - strength) * masses


def basket_log_masses(scores: Tensor, baskets: Baskets) -> Tensor:
    """The log-sum-exp of the scores in each basket, -inf where there is none.  # (heads, rows, 2 + baskets)"""
    # Finite inside, so that a basket that does not exist has no NaN for a gradient.
    lowest = torch.finfo(scores.dtype).min
    content = scores[:, baskets.slots].masked_fill(~baskets.filled, lowest).logsumexp(dim=-1)
    first = baskets.first.clamp(max=scores.shape[1] - 1)  # that of a packed text without tokens may be behind the last
    alone = torch.stack([scores[:, baskets.pooled], scores[:, first]], dim=-1)
    return torch.cat([alone, content], dim=-1).masked_fill(~baskets.present, -torch.inf)


def target_masses(masses: Tensor, present: Tensor, rules: Sequence[float | Tensor]) -> Tensor:
    """What each basket gets at full strength: the fixed masses first, the others share the rest equally.

    If the fixed masses together exceed 1, nothing is left to share and they are scaled to sum to 1.

    Args:
        masses: before calibration.  # (..., rows, 2 + baskets)
        present: which baskets exist.  # (rows, 2 + baskets)
        rules: what `rules_of` says, in numbers or in tensors that broadcast over the rows of the masses.
    """
    keep_pooled, give_pooled, share_pooled, keep_first, give_first, share_first = rules
    there = present.to(masses.dtype)
    pooled = keep_pooled * masses[..., POOLED] + give_pooled
    first = (keep_first * masses[..., FIRST] + give_first) * there[:, FIRST]
    taken = pooled + first
    share_pooled, share_first = share_pooled * there[:, POOLED], share_first * there[:, FIRST]
    sharing = there[:, CONTENT:].sum(dim=-1) + share_pooled + share_first
    share = (1.0 - taken).clamp(min=0.0) / sharing.clamp(min=1.0)
    alone = torch.stack([pooled + share_pooled * share, first + share_first * share], dim=-1)
    return torch.cat([alone, share.unsqueeze(-1) * there[:, CONTENT:]], dim=-1) / taken.clamp(min=1.0).unsqueeze(-1)


def rules_of(calibration: Calibration) -> tuple[float, ...]:
    """For the pooling token and the first token: 1 if it keeps its mass, the mass it is given, 1 if it gets a share."""
    first = calibration.first_token
    if first is None:
        first = "equal" if calibration.variant == "uniform" else "keep"
    given = 0.0 if isinstance(first, str) else float(first)
    pooled = {
        "soft": (1.0, 0.0, 0.0),
        "hard": (0.0, float(calibration.self_mass), 0.0),
        "uniform": (0.0, 0.0, 1.0),
    }
    return (*pooled[calibration.variant], float(first == "keep"), given, float(first == "equal"))


def spread(scores: Tensor, log_masses: Tensor, weights: Tensor, baskets: Baskets) -> Tensor:
    """Give each key its part of its basket's weight, in the original proportions.  # (heads, keys)"""
    size = log_masses.shape[-1]
    real = baskets.basket_of_key < size
    basket = baskets.row_of_key * size + baskets.basket_of_key.clamp(max=size - 1)
    inside = torch.exp(torch.where(real, scores - log_masses.flatten(1)[:, basket], -torch.inf))
    return inside * torch.where(real, weights.flatten(1)[:, basket], 0.0)
