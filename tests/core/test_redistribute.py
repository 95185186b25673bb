"""Properties of the redistribution that hold for any scores, any geometry and any setting."""

from __future__ import annotations

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from test_calibration import calibrations

from evenspan.calibration import Calibration
from evenspan.core.baskets import CONTENT, Baskets
from evenspan.core.redistribute import redistribute

settings.register_profile("tests", deadline=None, max_examples=60)
settings.load_profile("tests")


@st.composite
def rows(draw):
    """Scores and geometry of a small batch whose rows are all long enough to be calibrated."""
    basket_size = draw(st.integers(1, 5))
    lengths = draw(st.lists(st.integers(basket_size + 2, 40), min_size=1, max_size=4))
    pooling = draw(st.sampled_from(["cls", "last"]))
    side = draw(st.sampled_from(["left", "right"]))
    longest = max(lengths)
    mask = torch.zeros(len(lengths), longest, dtype=torch.bool)
    for row, length in enumerate(lengths):
        mask[row, : length if side == "right" else None] = True
        if side == "left":
            mask[row, : longest - length] = False
    baskets = Baskets.from_mask(mask, pooling, basket_size)
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**31)))
    spread = draw(st.sampled_from([0.1, 1.0, 10.0, 100.0]))
    return torch.randn(2, mask.numel(), generator=generator) * spread, baskets


def plain(scores: torch.Tensor, baskets: Baskets) -> torch.Tensor:
    return redistribute(scores, baskets, Calibration(strength=0.0))


def per_basket(weights: torch.Tensor, baskets: Baskets) -> torch.Tensor:
    """Total weight of each basket.  # (heads, rows, baskets + 2)"""
    size = baskets.present.shape[1]
    place = baskets.row_of_key * (size + 1) + baskets.basket_of_key
    total = torch.zeros(weights.shape[0], baskets.present.shape[0] * (size + 1), dtype=torch.float64)
    total = total.index_add(1, place, weights.double()).view(weights.shape[0], -1, size + 1)
    assert (total[..., size] == 0).all(), "padding must get no weight"
    return total[..., :size]


@given(rows(), calibrations())
def test_rows_sum_to_one_and_are_never_negative(row, calibration) -> None:
    scores, baskets = row
    weights = redistribute(scores, baskets, calibration)
    assert (weights >= 0).all()
    torch.testing.assert_close(
        per_basket(weights, baskets).sum(dim=-1),
        torch.ones(2, baskets.pooled.shape[0], dtype=torch.float64),
        atol=1e-5,
        rtol=0,
    )


@given(rows(), st.sampled_from(["soft", "uniform", "hard"]))
def test_at_full_strength_content_baskets_weigh_the_same(row, variant) -> None:
    scores, baskets = row
    content = per_basket(redistribute(scores, baskets, Calibration(variant, strength=1.0)), baskets)[..., CONTENT:]
    present = baskets.present[:, CONTENT:]
    mean = content.sum(dim=-1, keepdim=True) / present.sum(dim=-1, keepdim=True)
    torch.testing.assert_close(content, mean * present, atol=1e-5, rtol=0)


@given(rows(), calibrations())
def test_proportions_inside_a_basket_are_kept(row, calibration) -> None:
    scores, baskets = row
    before, after = plain(scores, baskets).double(), redistribute(scores, baskets, calibration).double()
    masses = per_basket(before, baskets), per_basket(after, baskets)
    size = baskets.present.shape[1]
    place = (baskets.row_of_key * size + baskets.basket_of_key.clamp(max=size - 1)).expand_as(before)
    # before / its basket's mass == after / its basket's mass, without the division
    left = before * masses[1].flatten(1).gather(1, place)
    right = after * masses[0].flatten(1).gather(1, place)
    torch.testing.assert_close(left, right, atol=2e-6, rtol=0)


@given(rows(), st.floats(0, 1))
def test_soft_keeps_the_pooling_tokens_own_mass(row, strength) -> None:
    scores, baskets = row
    before, after = plain(scores, baskets), redistribute(scores, baskets, Calibration("soft", strength))
    torch.testing.assert_close(after[:, baskets.pooled], before[:, baskets.pooled], atol=1e-6, rtol=0)


@given(rows(), calibrations(), st.floats(0, 1), st.floats(0, 1))
def test_monotone_in_strength(row, calibration, one, other) -> None:
    """Each basket moves straight from its own mass to its target."""
    scores, baskets = row
    low, high = sorted((one, other))
    setting = calibration.to_dict()
    start, nearer, further, end = (
        per_basket(redistribute(scores, baskets, Calibration.from_dict({**setting, "strength": strength})), baskets)
        for strength in (0.0, low, high, 1.0)
    )
    direction = (end - start).sign()
    assert ((further - nearer) * direction >= -1e-6).all()


@given(rows())
def test_zero_strength_is_softmax(row) -> None:
    scores, baskets = row
    weights = plain(scores, baskets)
    for index in range(baskets.pooled.shape[0]):
        mine = (baskets.row_of_key == index) & (baskets.basket_of_key < baskets.present.shape[1])
        torch.testing.assert_close(weights[:, mine], torch.softmax(scores[:, mine], dim=-1), atol=1e-6, rtol=1e-4)


def test_hard_on_a_large_sink_scales_the_fixed_masses() -> None:
    """A first token with mass near 1 that keeps it, and 0.3 for the pooling token: content gets nothing."""
    mask = torch.ones(1, 10, dtype=torch.bool)
    baskets = Baskets.from_mask(mask, "last", 4)
    scores = torch.zeros(1, 10)
    scores[0, 0] = 10.0
    weights = redistribute(scores, baskets, Calibration("hard", 1.0, basket_size=4))
    first = plain(scores, baskets)[0, 0]
    assert first > 0.7
    expected = torch.tensor([[first, 0.3]]) / (first + 0.3)
    torch.testing.assert_close(weights[:, [0, 9]], expected)
    assert (weights[:, 1:9] == 0).all()
