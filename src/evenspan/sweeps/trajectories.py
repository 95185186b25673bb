"""The pooling tokens' own way through the layers, for many settings beside one plain pass.

At every layer the plain pass gives keys and values for all tokens; a setting differs from it in its pooled rows alone.
This is exact as long as no other row has seen a pooled row that was changed: in a causal model always, in others up to the
layer behind the first calibrated one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from evenspan.attention import refuse_unknown_scores
from evenspan.baskets import Baskets
from evenspan.calibration import Calibration
from evenspan.families import Family
from evenspan.last_layer import pooled_rotation, window_of
from evenspan.redistribute import redistribute
from evenspan.rows import pooled_scores, weighted_values

PLAIN = Calibration(strength=0.0)


@dataclass(frozen=True)
class Setting:
    """A calibration and the layers it is used in."""

    calibration: Calibration
    layers: frozenset[int]

    @property
    def first(self) -> int:
        """The first layer whose output it changes."""
        return min(self.layers)


def advance(
    family: Family,
    layer: nn.Module,
    index: int,
    hidden: Tensor,  # (batch, tokens, width), the input of the layer
    kwargs: Mapping[str, Any],
    rows: Mapping[Setting, Tensor],  # (rows, width) each, the pooled rows of that input
    baskets: Mapping[int, Baskets],
) -> dict[Setting, Tensor]:
    """Take the pooled rows of several settings through one layer, whose other rows are those of `hidden`."""
    attention: Any = family.attention(layer)
    rotation = kwargs.get("position_embeddings")
    keys, values = family.keys_and_values(attention, family.attended(layer, hidden), rotation)
    geometry = next(iter(baskets.values()))
    refuse_unknown_scores(keys, geometry, {"sliding_window": window_of(attention)})
    rotated = pooled_rotation(rotation, hidden, geometry)
    done = {}
    for setting, own in rows.items():
        states = family.attended(layer, own)
        own_keys, own_values = family.keys_and_values(
            attention, states.unsqueeze(1), rotated
        )  # (rows, groups, 1, head_dim)
        query = family.query(attention, states, rotated)
        used = setting.calibration if index in setting.layers else PLAIN
        size = setting.calibration.basket_size
        outputs = _own_attention(
            query, keys, values, own_keys[:, :, 0], own_values[:, :, 0], baskets[size], used, attention.scaling
        )
        done[setting] = family.finish(layer, own, outputs.flatten(1).to(own.dtype))
    return done


def _own_attention(
    query: Tensor,  # (rows, heads, head_dim)
    keys: Tensor,  # (batch, groups, keys, head_dim), of the plain pass
    values: Tensor,
    own_keys: Tensor,  # (rows, groups, head_dim), of the pooling tokens themselves
    own_values: Tensor,
    baskets: Baskets,
    calibration: Calibration,
    scale: float,
) -> Tensor:
    """Attention of pooling tokens that are not those of the plain pass to everything that is.  # (rows, heads, head_dim)"""
    rows, heads, size = query.shape
    groups = own_keys.shape[1]
    with torch.autocast(query.device.type, enabled=False):
        scores = pooled_scores(query, keys, baskets, scale, None)  # (heads, keys)
        per_group = query.float().view(rows, groups, heads // groups, size)
        own_scores = (per_group * own_keys.float().unsqueeze(2)).sum(-1).view(rows, heads) * scale
        scores = scores.index_copy(1, baskets.pooled, own_scores.T)
        weights = redistribute(scores, baskets, calibration)
        outputs = weighted_values(weights, values, baskets)
        plain_values = values.transpose(1, 2).flatten(0, 1)[baskets.pooled].float()  # (rows, groups, head_dim)
        change = (own_values.float() - plain_values).repeat_interleave(heads // groups, dim=1)
        return outputs + weights[:, baskets.pooled].T.unsqueeze(-1) * change
