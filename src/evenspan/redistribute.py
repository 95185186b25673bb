"""How attention is redistributed: pure tensor maths on the scores of the pooled rows, in float32.

Masses stay log-sum-exps and proportions are taken inside each basket, so a basket whose mass underflows still has its
proportions, and nothing is ever divided by a summed weight.
"""

from __future__ import annotations

import torch
from torch import Tensor

from evenspan.baskets import FIRST, POOLED, Baskets
from evenspan.calibration import Calibration


def redistribute(scores: Tensor, baskets: Baskets, calibration: Calibration, strengths: Tensor | None = None) -> Tensor:
    """The calibrated attention of each sequence's pooling token over its keys.

    Args:
        scores: scaled scores before softmax, of each key under its own sequence's pooling token.  # (heads, keys)
        baskets: the geometry of the batch.
        calibration: how to spread the masses.
        strengths: of each head, in place of the calibration's.  # (heads,)

    Returns:
        Weights that sum to 1 over the keys of each sequence; 0 for padding.  # (heads, keys)
    """
    log_masses = basket_log_masses(scores, baskets)
    masses = torch.softmax(log_masses, dim=-1)
    targets = target_masses(masses, baskets.present, calibration)
    # A sequence that is too short keeps its masses.
    wanted = calibration.strength if strengths is None else strengths.to(masses.dtype).view(-1, 1, 1)
    strength = wanted * baskets.active.to(masses.dtype).unsqueeze(-1)
    weights = strength * targets + (1.0 - strength) * masses
    return spread(scores, log_masses, weights, baskets)


def basket_log_masses(scores: Tensor, baskets: Baskets) -> Tensor:
    """The log-sum-exp of the scores in each basket, -inf where there is none.  # (heads, rows, 2 + baskets)"""
    # Finite inside, so that a basket that does not exist has no NaN for a gradient.
    lowest = torch.finfo(scores.dtype).min
    content = scores[:, baskets.slots].masked_fill(~baskets.filled, lowest).logsumexp(dim=-1)
    first = baskets.first.clamp(max=scores.shape[1] - 1)  # that of a packed text without tokens may be behind the last
    alone = torch.stack([scores[:, baskets.pooled], scores[:, first]], dim=-1)
    return torch.cat([alone, content], dim=-1).masked_fill(~baskets.present, -torch.inf)


def target_masses(masses: Tensor, present: Tensor, calibration: Calibration) -> Tensor:
    """What each basket gets at full strength: the fixed masses first, the others share the rest equally.

    Fixed are the pooling token's mass, unless the variant is uniform, and an isolated first token's, unless it is to
    get an equal share. If together they exceed 1, nothing is left to share and they are scaled to sum to 1.
    """
    fixed = torch.zeros_like(masses)
    sharing = present.clone()
    if calibration.variant != "uniform":
        sharing[:, POOLED] = False
        fixed[..., POOLED] = masses[..., POOLED] if calibration.variant == "soft" else calibration.self_mass
    first_token = calibration.first_token
    if first_token is None:
        first_token = "equal" if calibration.variant == "uniform" else "keep"
    if first_token != "equal":
        sharing[:, FIRST] = False
        own = masses[..., FIRST] if first_token == "keep" else torch.full_like(masses[..., FIRST], first_token)
        fixed[..., FIRST] = own * present[:, FIRST]
    taken = fixed.sum(dim=-1, keepdim=True)
    share = (1.0 - taken).clamp(min=0.0) / sharing.sum(dim=-1, keepdim=True).clamp(min=1)
    return torch.where(sharing, share, fixed) / taken.clamp(min=1.0)


def spread(scores: Tensor, log_masses: Tensor, weights: Tensor, baskets: Baskets) -> Tensor:
    """Give each key its part of its basket's weight, in the original proportions.  # (heads, keys)"""
    size = log_masses.shape[-1]
    real = baskets.basket_of_key < size
    basket = baskets.row_of_key * size + baskets.basket_of_key.clamp(max=size - 1)
    inside = torch.exp(torch.where(real, scores - log_masses.flatten(1)[:, basket], -torch.inf))
    return inside * torch.where(real, weights.flatten(1)[:, basket], 0.0)
