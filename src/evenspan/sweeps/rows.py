"""The pooling tokens' own way through the layers, for many settings beside one plain pass.

At every layer the plain pass gives keys and values for all tokens; a setting differs from it in its pooled rows alone.
This is exact as long as no other row has seen a pooled row that was changed: in a causal model always, in others up to the
layer behind the first calibrated one.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from evenspan.calibration import Calibration
from evenspan.core.attention import refuse_unknown_scores
from evenspan.core.baskets import Baskets
from evenspan.core.families import Family
from evenspan.core.last_layer import pooled_rotation, window_of
from evenspan.core.redistribute import Plan, basket_log_masses, calibrated_masses, plan, rules_of, spread
from evenspan.core.rows import pooled_scores, weighted_values


@dataclass(frozen=True)
class Setting:
    """A calibration and the layers it is used in."""

    calibration: Calibration
    layers: frozenset[int]

    @property
    def first(self) -> int:
        """The first layer whose output it changes."""
        return min(self.layers)


# What settings of one basket size do with a batch, by where they calibrate: the same in most layers.
Plans = dict[tuple[tuple[Setting, ...], tuple[bool, ...]], Plan]


def advance(
    family: Family,
    layer: nn.Module,
    index: int,
    hidden: Tensor,  # (batch, tokens, width), the input of the layer
    kwargs: Mapping[str, Any],
    rows: Mapping[Setting, Tensor],  # (rows, width) each, the pooled rows of that input
    baskets: Mapping[int, Baskets],
    plans: Plans,
) -> dict[Setting, Tensor]:
    """Take the pooled rows of several settings through one layer, whose other rows are those of `hidden`."""
    attention: Any = family.attention(layer)
    rotation = kwargs.get("position_embeddings")
    keys, values = family.keys_and_values(attention, family.attended(layer, hidden), rotation)
    geometry = next(iter(baskets.values()))
    refuse_unknown_scores(keys, geometry, {"sliding_window": window_of(attention)})
    rotated = pooled_rotation(rotation, hidden, geometry)
    done: dict[Setting, Tensor] = {}
    for together in _portions(sorted(rows, key=_basket_size), hidden):
        own = torch.cat([rows[setting] for setting in together])  # (settings * rows, width)
        states = family.attended(layer, own)
        places = None if rotated is None else _repeated(rotated, len(together))
        own_keys, own_values = family.keys_and_values(attention, states.unsqueeze(1), places)
        query = family.query(attention, states, places)
        outputs = _own_attention(
            query,
            keys,
            values,
            own_keys[:, :, 0],
            own_values[:, :, 0],
            baskets,
            together,
            index,
            attention.scaling,
            plans,
        )
        finished = family.finish(layer, own, outputs.flatten(1).to(own.dtype))
        done.update(zip(together, finished.chunk(len(together)), strict=True))
    return done


def _basket_size(setting: Setting) -> int:
    return setting.calibration.basket_size


def _portions(settings: Sequence[Setting], hidden: Tensor) -> list[Sequence[Setting]]:
    """As many settings at a time as need no more memory than a few times what goes into a layer."""
    # A setting has a few float32 for each head and token.
    most = max(1, hidden.shape[-1] * hidden.element_size() // 64)
    return [settings[start : start + most] for start in range(0, len(settings), most)]


def _repeated(rotation: tuple[Tensor, Tensor], times: int) -> tuple[Tensor, Tensor]:
    cos, sin = (part.repeat(times, 1, 1) for part in rotation)
    return cos, sin


def _own_attention(
    query: Tensor,  # (settings * rows, heads, head_dim)
    keys: Tensor,  # (batch, groups, keys, head_dim), of the plain pass
    values: Tensor,
    own_keys: Tensor,  # (settings * rows, groups, head_dim), of the pooling tokens themselves
    own_values: Tensor,
    baskets: Mapping[int, Baskets],
    settings: Sequence[Setting],  # those of one basket size side by side
    index: int,
    scale: float,
    plans: Plans,
) -> Tensor:
    """Attention of pooling tokens that are not those of the plain pass to everything that is.

    Settings are further heads: in each group of heads that share keys come the heads of one setting after another.

    Returns:
        What each pooling token gets.  # (settings * rows, heads, head_dim)
    """
    _, heads, size = query.shape
    groups = own_keys.shape[1]
    geometry = baskets[settings[0].calibration.basket_size]
    rows, pooled = geometry.pooled.shape[0], geometry.pooled
    shape = (len(settings), rows, groups, heads // groups, size)
    with torch.autocast(query.device.type, enabled=False):
        queries = (
            query.float().view(shape).permute(1, 2, 0, 3, 4)
        )  # (rows, groups, settings, heads of a group, head_dim)
        beside = (len(settings), rows, groups, 1, size)
        own_scores = (queries * own_keys.float().view(beside).permute(1, 2, 0, 3, 4)).sum(-1) * scale
        scores = pooled_scores(queries.reshape(rows, -1, size), keys, geometry, scale, None)
        scores.index_copy_(1, pooled, own_scores.flatten(1).T)  # (groups * settings * heads of a group, keys)
        weights = _redistributed(
            scores.view(groups, len(settings), -1, scores.shape[1]), baskets, settings, index, plans
        )
        outputs = weighted_values(weights.view(scores.shape), values, geometry)
        plain_values = values.transpose(1, 2).flatten(0, 1)[pooled].float().view(1, rows, groups, 1, size)
        change = (own_values.float().view(beside) - plain_values).permute(1, 2, 0, 3, 4)
        own_weights = weights[..., pooled].permute(3, 0, 1, 2).unsqueeze(-1)
        outputs = outputs.view(rows, groups, len(settings), -1, size) + own_weights * change
        return outputs.permute(2, 0, 1, 3, 4).reshape(query.shape)


def _redistributed(
    scores: Tensor, baskets: Mapping[int, Baskets], settings: Sequence[Setting], index: int, plans: Plans
) -> Tensor:  # both (groups, settings, heads of a group, keys)
    """The weights under each setting, or the plain ones where a setting leaves this layer alone."""
    parts, start = [], 0
    for size, group in itertools.groupby(settings, key=_basket_size):
        alike, geometry = tuple(group), baskets[size]
        part = scores[:, start : start + len(alike)].reshape(-1, scores.shape[-1])
        start += len(alike)
        log_masses = basket_log_masses(part, geometry)
        masses = torch.softmax(log_masses, dim=-1).view(scores.shape[0], len(alike), -1, *log_masses.shape[1:])
        there = tuple(index in setting.layers for setting in alike)
        if (alike, there) not in plans:
            plans[alike, there] = _plan(alike, there, geometry)
        weights = calibrated_masses(masses, plans[alike, there])
        parts.append(spread(part, log_masses, weights.view(log_masses.shape), geometry))
    if len(parts) == 1:
        return parts[0].view(scores.shape)
    return torch.cat([part.view(scores.shape[0], -1, *scores.shape[2:]) for part in parts], dim=1)


def _plan(settings: Sequence[Setting], there: Sequence[bool], geometry: Baskets) -> Plan:
    """What several settings do with the masses of one geometry, in a layer that some of them leave alone."""
    each = [
        (setting.calibration.strength * is_calibrated, *rules_of(setting.calibration))
        for setting, is_calibrated in zip(settings, there, strict=True)
    ]
    numbers = torch.tensor(each).to(geometry.pooled.device, non_blocking=True)
    strength, *rules = numbers.T.view(7, 1, -1, 1, 1)  # (groups, settings, heads of a group, rows) each
    return plan(rules, strength, geometry)
