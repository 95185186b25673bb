"""The pooling tokens' own way through the layers, for many settings beside one plain pass.

At every layer the plain pass gives keys and values for all tokens; a setting differs from it in its pooled rows alone.
This is exact as long as no other row has seen a pooled row that was changed: in a causal model always, in others up to the
layer behind the first calibrated one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from operator import attrgetter
from typing import Any

import torch
from torch import Tensor, nn

from evenspan.calibration import Calibration
from evenspan.core.baskets import Baskets
from evenspan.core.families import family_of
from evenspan.core.last_layer import pooled_rotation, window_of
from evenspan.core.redistribute import Plan, basket_log_masses, calibrated_masses, plan, rules_of, spread
from evenspan.core.rows import pooled_scores, weighted_values
from evenspan.core.verifying import refuse_unknown_scores


@dataclass(frozen=True)
class SweptSetting:
    """A calibration and the layers it is used in."""

    calibration: Calibration
    layers: frozenset[int]

    @property
    def first(self) -> int:
        """The first layer whose output it changes."""
        return min(self.layers)


Cut = tuple[int, str]  # how a setting cuts passages into baskets: their size and the partition
cut_of: Callable[[SweptSetting], Cut] = attrgetter("calibration.basket_size", "calibration.partition")
# What settings of one cut do with a batch, by where they calibrate: the same in most layers.
Plans = dict[tuple[tuple[SweptSetting, ...], tuple[bool, ...]], Plan]


def advance(
    layer: nn.Module,
    index: int,
    hidden: Tensor,  # (batch, tokens, width), the input of the layer
    kwargs: Mapping[str, Any],
    rows: Mapping[SweptSetting, Tensor],  # (rows, width) each, the pooled rows of that input
    baskets: Mapping[Cut, Baskets],
    plans: Plans,
) -> dict[SweptSetting, Tensor]:
    """Take the pooled rows of several settings through one layer of a known family, whose other rows are those of `hidden`."""
    family: Any = family_of(layer)
    attention = family.attention(layer)
    rotation = kwargs.get("position_embeddings")
    plain = family.keys_and_values(attention, family.attended(layer, hidden), rotation)
    geometry = next(iter(baskets.values()))
    refuse_unknown_scores(plain[0], geometry, {"sliding_window": window_of(attention)})
    rotated = pooled_rotation(rotation, hidden, geometry)
    # As many settings at a time as need no more memory than a few times what goes into a layer: a setting has a few
    # float32 for each head and token.
    most = max(1, hidden.shape[-1] * hidden.element_size() // 64)
    ordered = sorted(rows, key=cut_of)
    done: dict[SweptSetting, Tensor] = {}
    for together in (ordered[start : start + most] for start in range(0, len(ordered), most)):
        own = torch.cat([rows[setting] for setting in together])  # (settings * rows, width)
        states = family.attended(layer, own)
        places = rotated and tuple(part.repeat(len(together), 1, 1) for part in rotated)
        query = family.query(attention, states, places)
        keys, values = (part[:, :, 0] for part in family.keys_and_values(attention, states.unsqueeze(1), places))
        weigh = partial(_redistributed, baskets=baskets, settings=together, index=index, plans=plans)
        outputs = _own_attention(query, (keys, values), plain, geometry, attention.scaling, weigh)
        finished = family.finish(layer, own, outputs.flatten(1).to(own.dtype))
        done.update(zip(together, finished.chunk(len(together)), strict=True))
    return done


def _own_attention(
    query: Tensor,  # (settings * rows, heads, head_dim)
    own: tuple[Tensor, Tensor],  # keys and values of the pooling tokens themselves: (settings * rows, groups, head_dim)
    plain: tuple[Tensor, Tensor],  # those of the plain pass: (batch, groups, keys, head_dim)
    geometry: Baskets,
    scale: float,
    weigh: Callable[[Tensor], Tensor],  # from scores to weights, both (groups, settings, heads of a group, keys)
) -> Tensor:
    """Attention of pooling tokens that are not those of the plain pass to everything that is.

    Settings are further heads: in each group of heads that share keys come the heads of one setting after another.

    Returns:
        What each pooling token gets.  # (settings * rows, heads, head_dim)
    """
    rows, groups, size = len(geometry.pooled), own[0].shape[1], query.shape[-1]

    def arranged(states: Tensor) -> Tensor:  # (rows, groups, settings, heads of a group, head_dim)
        return states.float().view(-1, rows, groups, states.shape[1] // groups, size).permute(1, 2, 0, 3, 4)

    with torch.autocast(query.device.type, enabled=False):
        queries = arranged(query)
        own_scores = (queries * arranged(own[0])).sum(-1) * scale
        scores = pooled_scores(queries.reshape(rows, -1, size), plain[0], geometry, scale, None)
        scores.index_copy_(1, geometry.pooled, own_scores.flatten(1).T)  # (groups * settings * heads of a group, keys)
        weights = weigh(scores.view(*queries.shape[1:4], scores.shape[1]))
        outputs = weighted_values(weights.view(scores.shape), plain[1], geometry).view(queries.shape)
        change = arranged(own[1]) - arranged(plain[1].transpose(1, 2).flatten(0, 1)[geometry.pooled])
        own_weights = weights[..., geometry.pooled].permute(3, 0, 1, 2).unsqueeze(-1)
        return (outputs + own_weights * change).permute(2, 0, 1, 3, 4).reshape(query.shape)


def _redistributed(
    scores: Tensor, baskets: Mapping[Cut, Baskets], settings: Sequence[SweptSetting], index: int, plans: Plans
) -> Tensor:  # both (groups, settings, heads of a group, keys)
    """The weights under each setting, or the plain ones where a setting leaves this layer alone."""
    parts, start = [], 0
    for cut, members in groupby(settings, key=cut_of):
        alike, geometry = tuple(members), baskets[cut]
        part = scores[:, start : start + len(alike)].reshape(-1, scores.shape[-1])
        start += len(alike)
        log_masses = basket_log_masses(part, geometry)
        masses = torch.softmax(log_masses, dim=-1).view(scores.shape[0], len(alike), -1, *log_masses.shape[1:])
        there = tuple(index in setting.layers for setting in alike)
        if (alike, there) not in plans:
            plans[alike, there] = _plan(alike, there, geometry)
        weights = calibrated_masses(masses, plans[alike, there])
        weighed = spread(part, log_masses, weights.view(log_masses.shape), geometry)
        parts.append(weighed.view(scores.shape[0], -1, *scores.shape[2:]))
    return parts[0] if len(parts) == 1 else torch.cat(parts, dim=1)


def _plan(settings: Sequence[SweptSetting], there: Sequence[bool], geometry: Baskets) -> Plan:
    """What several settings do with the masses of one geometry, in a layer that some of them leave alone."""
    each = [
        (setting.calibration.strength * calibrated, *rules_of(setting.calibration))
        for setting, calibrated in zip(settings, there, strict=True)
    ]
    numbers = torch.tensor(each).to(geometry.pooled.device, non_blocking=True)
    strength, *rules = numbers.T.view(7, 1, -1, 1, 1)  # (groups, settings, heads of a group, rows) each
    return plan(rules, strength, geometry)
