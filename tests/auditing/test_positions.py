"""Positions are told apart from content, with honest intervals."""

from __future__ import annotations

import numpy as np
import pytest

from evenspan.auditing.positions import effects, orders, representation


@pytest.mark.parametrize(("at", "bias"), [(0, "primacy"), (4, "recency"), (None, "none found")])
def test_positions_are_told_from_content(at, bias) -> None:
    """Content is three times as strong as position, and stands in an order of its own: the lead is what matters most."""
    random = np.random.default_rng(0)
    documents = 400
    order = orders(documents, 5, 1, seed=1)
    content = random.normal(0.5, 0.1, (documents, 5)) + np.array([0.3, 0.1, 0.0, 0.0, 0.0])
    position = np.zeros(5)
    if at is not None:
        position[at] = 0.1
    similarities = np.take_along_axis(content[:, None], order, axis=2) + position
    similarities += random.normal(0.0, 0.02, similarities.shape)
    alike = content * 2 + random.normal(0.0, 0.05, content.shape)
    found = representation(effects(similarities, order, alike, seed=0))
    blind = representation(effects(similarities, order, np.zeros_like(alike), seed=0))
    assert np.ptp(found.slope.interval) < 0.7 * np.ptp(blind.slope.interval)  # what a segment is like takes chance out
    assert found.bias == bias
    estimated = np.array([one.value for one in found.positions])
    np.testing.assert_allclose(estimated - estimated.mean(), position - position.mean(), atol=0.01)
    covered = [one.interval[0] <= one.value <= one.interval[1] for one in found.positions]
    assert all(covered)


@pytest.mark.parametrize(
    ("positions", "verdict"),
    [
        ([0.7, 0.5, 0.5, 0.5, 0.7], "strong both ends"),
        ([0.7, 0.5, 0.5, 0.5, 0.68], "strong both ends"),
        ([0.5, 0.7, 0.7, 0.7, 0.5], "strong middle"),
        ([0.7, 0.5, 0.5, 0.5, 0.5], "strong primacy"),
    ],
)
def test_shapes(positions, verdict) -> None:
    order = orders(200, 5, 2, seed=1)
    random = np.random.default_rng(0)
    content = random.normal(0.0, 0.1, (200, 5))
    noise = random.normal(0.0, 0.02, (200, 2, 5))
    similarities = np.take_along_axis(np.repeat(content[:, None], 2, axis=1), order, 2) + positions + noise
    found = representation(effects(similarities, order, content, seed=0))
    assert found.verdict == verdict


def test_intervals_hold_what_they_promise() -> None:
    """Where there is no bias, one is found as rarely as 95 % says, with few documents too."""
    random, found = np.random.default_rng(0), 0
    for trial in range(300):
        order = orders(12, 5, 1, seed=trial)
        low, high = representation(
            effects(random.normal(0.5, 0.1, order.shape), order, random.normal(size=(12, 5)), seed=trial)
        ).slope.interval
        found += not low <= 0 <= high
    assert found < 300 * 0.09


def test_rounding_is_no_bias() -> None:
    order = orders(50, 5, 2, seed=1)
    same = np.full((50, 2, 5), 0.9) + 1e-7 * np.arange(5)
    assert representation(effects(same, order, np.zeros((50, 5)), seed=0)).verdict == "none found"


def test_every_segment_stands_everywhere() -> None:
    order = orders(400, 4, 3, seed=0)
    assert (np.sort(order, axis=2) == np.arange(4)).all()
    assert (order[:, 0] != order[:, 1]).all()
    assert (order[:, 1] != order[:, 2]).all()
    for position in range(4):
        assert (np.bincount(order[:, 0, position]) > 70).all()
