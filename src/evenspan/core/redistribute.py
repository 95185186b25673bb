"""How attention is redistributed: pure tensor maths on the scores of the pooled rows, in float32.

Masses stay log-sum-exps and proportions are taken inside each basket, so a basket whose mass underflows still has its
proportions, and nothing is ever divided by a summed weight.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from evenspan.calibration import Calibration
from evenspan.core.baskets import CONTENT, FIRST, POOLED, Baskets


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
    masses = calibrated_masses(torch.softmax(log_masses, dim=-1), plan_of(calibration, baskets))
    return spread(scores, log_masses, masses, baskets)


class Plan(NamedTuple):
    """What becomes of the masses of a geometry's baskets: a part of each is kept, some get a fixed mass, the rest is shared.

    Attributes:
        kept: the part of its own mass that a basket keeps.  # (..., rows, 2 + baskets), as the next two
        given: the mass it is given besides.
        shares: its part of what is then left, which sums to 1.
        strength: how far to go, 0 for sequences that are too short.  # (..., rows, 1)
    """

    kept: Tensor
    given: Tensor
    shares: Tensor
    strength: Tensor


def plan_of(calibration: Calibration, baskets: Baskets) -> Plan:
    """What a calibration does with a geometry."""
    return plan(rules_of(calibration), calibration.strength, baskets)


def plan(rules: Sequence[float | Tensor], strength: float | Tensor, baskets: Baskets) -> Plan:
    """The same from what `rules_of` says, in numbers, or in tensors that broadcast over the rows of several settings."""
    keep_pooled, give_pooled, share_pooled, keep_first, give_first, share_first = rules
    there = baskets.present.to(torch.float32)
    kept, given, shares = (
        _columns(there, pooled, first, content)
        for pooled, first, content in (
            (keep_pooled, keep_first, 0.0),
            (give_pooled, give_first, 0.0),
            (share_pooled, share_first, 1.0),
        )
    )
    shares = shares / shares.sum(dim=-1, keepdim=True).clamp(min=1.0)
    return Plan(kept, given, shares, (strength * baskets.active.to(there.dtype)).unsqueeze(-1))


def _columns(there: Tensor, pooled: float | Tensor, first: float | Tensor, content: float) -> Tensor:
    """A number for each basket that is there: the pooling token's, the first token's, others.  # (..., rows, 2 + baskets)"""
    alone = torch.stack([pooled * there[:, POOLED], first * there[:, FIRST]], dim=-1)
    return torch.cat([alone, (content * there[:, CONTENT:]).expand(*alone.shape[:-1], -1)], dim=-1)


def calibrated_masses(masses: Tensor, plan: Plan) -> Tensor:
    """Redistribute masses: as much of the way as the strength says to the fixed masses and equal shares of the rest.

    If the fixed masses together exceed 1, nothing is left to share and they are scaled to sum to 1.
    """
    fixed = torch.addcmul(plan.given, masses, plan.kept)
    taken = fixed.sum(dim=-1, keepdim=True)
    targets = torch.addcmul(fixed, plan.shares, (1.0 - taken).clamp(min=0.0)) / taken.clamp(min=1.0)
    return torch.lerp(masses, targets, plan.strength)


def basket_log_masses(scores: Tensor, baskets: Baskets) -> Tensor:
    """The log-sum-exp of the scores in each basket, -inf where there is none.  # (heads, rows, 2 + baskets)"""
    # Finite inside, so that a basket that does not exist has no NaN for a gradient.
    lowest = torch.finfo(scores.dtype).min
    content = scores[:, baskets.slots].masked_fill(baskets.empty, lowest).logsumexp(dim=-1)
    return torch.cat([scores[:, baskets.alone], content], dim=-1).masked_fill(baskets.absent, -torch.inf)


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
    real, basket = baskets.real, baskets.place_of_key
    inside = torch.exp(torch.where(real, scores - log_masses.flatten(1)[:, basket], -torch.inf))
    return inside * torch.where(real, weights.flatten(1)[:, basket], 0.0)
