"""The method once more, slow and obvious, in float64: what the package is checked against.

Written from the formulas, one row at a time, without anything of the package.
"""

from __future__ import annotations

import math

import numpy as np


def baskets_of(content: list[int], basket_size: int, partition: str) -> list[list[int]]:
    """The content tokens of a sequence, basket by basket."""
    if partition == "paper":
        return [content[start : start + basket_size] for start in range(0, len(content), basket_size)]
    baskets: list[list[int]] = [[] for _ in range(max(1, (2 * len(content) + basket_size) // (2 * basket_size)))]
    for place, token in enumerate(content):
        baskets[place * len(baskets) // len(content)].append(token)
    return baskets


def calibrated_row(
    attention: np.ndarray,
    pooled: int,
    isolated: int | None,
    *,
    variant: str,
    strength: float,
    basket_size: int,
    self_mass: float = 0.3,
    first_token: str | float | None = None,
    log_attention: np.ndarray | None = None,
    partition: str = "paper",
) -> np.ndarray:
    """Redistribute one attention row over its valid keys.  # (keys,)

    `log_attention` gives proportions inside baskets whose mass underflows even in float64.
    """
    logs = np.log(attention) if log_attention is None else log_attention
    content = [key for key in range(len(attention)) if key not in (pooled, isolated)]
    baskets = baskets_of(content, basket_size, partition)
    if len(content) < basket_size or (partition == "even" and len(baskets) == 1):
        return attention

    if first_token is None:
        first_token = "equal" if variant == "uniform" else "keep"
    targets: dict[str, float] = {}
    if variant == "soft":
        targets["pooled"] = attention[pooled]
    if variant == "hard":
        targets["pooled"] = self_mass
    if isolated is not None and first_token != "equal":
        targets["isolated"] = attention[isolated] if first_token == "keep" else first_token
    fixed = sum(targets.values())
    sharers = len(baskets) + ("pooled" not in targets) + (isolated is not None and "isolated" not in targets)
    share = max(0.0, 1.0 - fixed) / sharers

    result = np.zeros(len(attention))
    result[pooled] = targets.get("pooled", share)
    if isolated is not None:
        result[isolated] = targets.get("isolated", share)
    for basket in baskets:
        inside = np.exp(logs[basket] - logs[basket].max())
        result[basket] = share * inside / inside.sum()
    if fixed > 1.0:
        result = result / fixed
    return strength * result + (1.0 - strength) * attention


def equalised_rows(
    attention: np.ndarray,  # (..., keys)
    strength: float,
    basket_size: int,
    partition: str = "paper",
    closing_token: bool = True,
    log_attention: np.ndarray | None = None,
) -> np.ndarray:
    """Rows of a mean-pooled model: the ends keep their mass, the baskets between them share theirs.  # (..., keys)"""
    logs = np.log(attention) if log_attention is None else log_attention
    content = list(range(1, attention.shape[-1] - (1 if closing_token else 0)))
    baskets = baskets_of(content, basket_size, partition)
    if len(content) < basket_size or (partition == "even" and len(baskets) == 1):
        return attention
    result = attention.copy()
    share = attention[..., content].sum(axis=-1, keepdims=True) / len(baskets)
    for basket in baskets:
        inside = np.exp(logs[..., basket] - logs[..., basket].max(axis=-1, keepdims=True))
        result[..., basket] = share * inside / inside.sum(axis=-1, keepdims=True)
    return strength * result + (1.0 - strength) * attention


def equalised_output(
    query: np.ndarray,  # (heads, tokens, head_dim), of one sequence, without padding
    key: np.ndarray,  # (groups, tokens, head_dim)
    value: np.ndarray,
    *,
    scale: float,
    softcap: float | None = None,
    **setting: object,
) -> np.ndarray:
    """What the tokens of a mean-pooled model get out of their attention.  # (heads, tokens, head_dim)"""
    key, value = (np.repeat(states, len(query) // len(key), axis=0) for states in (key, value))
    scores = query @ key.swapaxes(-1, -2) * scale
    if softcap is not None:
        scores = softcap * np.tanh(scores / softcap)
    logs = scores - scores.max(axis=-1, keepdims=True)
    logs = logs - np.log(np.exp(logs).sum(axis=-1, keepdims=True))
    return equalised_rows(np.exp(logs), log_attention=logs, **setting) @ value  # type: ignore[arg-type]


def attention_output(
    query: np.ndarray,  # (heads, head_dim), of the pooling token
    key: np.ndarray,  # (groups, keys, head_dim), of its own sequence, without padding
    value: np.ndarray,
    *,
    scale: float,
    pooled: int,
    isolated: int | None,
    softcap: float | None = None,
    **setting: object,
) -> np.ndarray:
    """The pooling token's calibrated attention output, head by head.  # (heads, head_dim)"""
    heads, groups = len(query), len(key)
    rows = []
    for head in range(heads):
        group = head * groups // heads
        scores = key[group] @ query[head] * scale
        if softcap is not None:
            scores = softcap * np.tanh(scores / softcap)
        logs = scores - scores.max()
        logs = logs - math.log(np.exp(logs).sum())
        row = calibrated_row(np.exp(logs), pooled, isolated, log_attention=logs, **setting)  # type: ignore[arg-type]
        rows.append(row @ value[group])
    return np.stack(rows)
