"""Mean-pooled models: every row against the slow float64 reference, over layouts, dtypes, partitions and extreme scores.

1,152 cases always, 11,520 with `make test-thorough`; `EVENSPAN_TEST_DEVICE=cuda` checks the fused kernel in the same way.
"""

from __future__ import annotations

import itertools
import os
import random
from collections import defaultdict
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from helpers.layouts import LAYOUTS, SCORES, batch, extreme, layout_of
from helpers.reference import equalised_output, equalised_rows
from torch import nn

from evenspan.calibration import Calibration
from evenspan.core import every_row
from evenspan.core.attention import CalibratedPass, calibrated_attention
from evenspan.core.calls import baskets_of
from evenspan.core.install import attach

DEVICE = os.environ.get("EVENSPAN_TEST_DEVICE", "cpu")
# Scores as drawn here reach a thousand, of which float32 leaves an error of some 6e-5. Half precision rounds the outputs.
LIMITS = {torch.float32: 1e-4, torch.float16: 2e-3, torch.bfloat16: 1.6e-2}
GRID = list(itertools.product(LAYOUTS, LIMITS, SCORES, ("paper", "even"), (True, False), (None, 20.0)))  # 288
EACH = 4


class StubAttention(nn.Module):
    """An attention module as the package sees it; its own attention must not be run."""

    def __init__(self) -> None:
        super().__init__()
        self.config = SimpleNamespace(_attn_implementation="sdpa")


def eager_attention_forward(*args: Any, **kwargs: Any) -> None:
    raise AssertionError("all rows are calibrated: plain attention is wasted")


ALL_ATTENTION_FUNCTIONS = SimpleNamespace(get_interface=lambda name, default: default)


def drawn(number: int) -> tuple[Calibration, list[int], list[list[torch.Tensor]], bool, float | None, str]:
    layout, dtype, scores, partition, closing, softcap = GRID[number % len(GRID)]
    pick = random.Random(number)
    torch.manual_seed(number)
    basket_size = pick.randint(1, 9)
    lengths = [pick.randint(1, 20 * basket_size + 2) for _ in range(pick.randint(1, 5))]
    lengths[0] = pick.randint(2, 20) * basket_size + pick.randint(2, 3)  # at least one that is long enough
    groups, size = pick.choice([1, 2]), pick.choice([8, 16])
    heads = groups * pick.choice([1, 2])
    sequences = []
    for length in lengths:
        query, key, value = (torch.randn(count, length, size) for count in (heads, groups, groups))
        extreme(scores, query[:, pick.randrange(length)], key, basket_size, pick)
        sequences.append([tensor.to(dtype) for tensor in (query, key, value)])
    setting = Calibration(strength=pick.choice([0.05, 0.5, 1.0]), basket_size=basket_size, partition=partition)
    return setting, lengths, sequences, closing, softcap, layout


def deviation(number: int) -> float:
    """The largest difference from the reference over all tokens."""
    setting, lengths, sequences, closing, softcap, layout = drawn(number)
    baskets = baskets_of(layout_of(lengths, layout), "last" if closing else "cls", setting).to(DEVICE)
    query, key, value = (batch(list(states), layout).to(DEVICE) for states in zip(*sequences, strict=True))
    module = StubAttention()
    attach({0: module})
    calibrated_pass = CalibratedPass(setting, frozenset([0]), baskets, every_row=True)
    output, _ = calibrated_attention(module, query, key, value, None, calibrated_pass, scaling=0.5, softcap=softcap)
    assert calibrated_pass.layers_done == 1
    assert output.dtype == query.dtype
    assert output.isfinite().all(), "nor may padding be anything that spreads"
    flat, start, worst = output.flatten(0, 1).double().cpu().numpy(), 0, 0.0
    for row, (length, states) in enumerate(zip(lengths, sequences, strict=True)):
        start = {"right": row * max(lengths), "left": (row + 1) * max(lengths) - length, "packed": start}[layout]
        arguments = {name: getattr(setting, name) for name in ("strength", "basket_size", "partition")}
        expected = equalised_output(
            *(tensor.double().numpy() for tensor in states),
            scale=0.5,
            softcap=softcap,
            closing_token=closing,
            **arguments,
        )
        worst = max(worst, np.abs(flat[start : start + length] - expected.swapaxes(0, 1)).max())
        start += length
    return worst


def run(numbers: range, record: Any) -> None:
    worst: dict[torch.dtype, float] = defaultdict(float)
    for number in numbers:
        dtype, off = GRID[number % len(GRID)][1], deviation(number)
        assert off <= LIMITS[dtype], f"case {number}: off by {off} in {dtype}"
        worst[dtype] = max(worst[dtype], off)
    for dtype, value in worst.items():
        record(f"worst deviation of every row in {str(dtype).removeprefix('torch.')}: {value:.2e}")


def test_sample(report) -> None:
    run(range(EACH * len(GRID)), report)


@pytest.mark.thorough
@pytest.mark.parametrize("part", range(10))
def test_all_cases(part, report) -> None:
    run(range(part * EACH * len(GRID), (part + 1) * EACH * len(GRID)), report)


def test_blocks_of_rows_change_nothing(monkeypatch) -> None:
    """Long passages are computed some rows at a time."""
    torch.manual_seed(0)
    query, key, value = torch.randn(3, 2, 4, 400, 16)
    setting = Calibration(basket_size=32)
    baskets = baskets_of(layout_of([400, 250], "right"), "last", setting)
    expected = every_row.calibrated_every_row(query, key, value, baskets, setting, 0.25)
    monkeypatch.setattr(every_row, "_AT_ONCE", 1)
    torch.testing.assert_close(every_row.calibrated_every_row(query, key, value, baskets, setting, 0.25), expected)


def test_padding_between_tokens() -> None:
    """A mask may have holes; what it hides is nobody's content."""
    torch.manual_seed(0)
    query, key, value = torch.randn(3, 1, 2, 60, 8)
    setting, mask = Calibration(basket_size=8), torch.ones(1, 60, dtype=torch.long)
    hidden = [3, 20, 21, 59]
    mask[0, hidden] = 0
    there = mask[0].bool()
    output = every_row.calibrated_every_row(
        query, key, value, baskets_of({"input_ids": mask, "attention_mask": mask}, "last", setting), setting, 0.3
    )
    states = (tensor[0][:, there].double().numpy() for tensor in (query, key, value))
    expected = equalised_output(*states, scale=0.3, strength=0.5, basket_size=8).swapaxes(0, 1)
    np.testing.assert_allclose(output[0, there].numpy(), expected, atol=1e-5)
    assert (output[0, hidden] == 0).all()


def test_masses_are_means_over_rows() -> None:
    torch.manual_seed(1)
    query, key, value = torch.randn(3, 1, 2, 50, 8)
    setting = Calibration(strength=0.7, basket_size=16)
    for closing, ends in ((True, [49, 0]), (False, [0])):
        baskets = baskets_of(layout_of([50], "right"), "last" if closing else "cls", setting)
        masses = every_row.every_row_masses(query, key, value, baskets, setting, 0.3).squeeze(1).double().numpy()
        plain = torch.softmax((query @ key.transpose(-1, -2)).double() * 0.3, dim=-1)[0].numpy()
        rows = equalised_rows(plain, 0.7, 16, closing_token=closing).mean(axis=1)  # (heads, keys)
        np.testing.assert_allclose(masses[:, : len(ends)], rows[:, ends], atol=1e-6)
        contents = [rows[:, start : min(start + 16, 50 - closing)].sum(axis=-1) for start in (1, 17, 33)]
        np.testing.assert_allclose(masses[:, 2:5].T, contents[: masses.shape[1] - 2], atol=1e-6)
        np.testing.assert_allclose(masses.sum(axis=-1), 1.0, atol=1e-5)


def test_gradients_pass() -> None:
    torch.manual_seed(0)
    states = [torch.randn(1, 2, 40, 8, requires_grad=True) for _ in range(3)]
    setting = Calibration(basket_size=8)
    baskets = baskets_of(layout_of([40], "right"), "last", setting)
    with torch.no_grad():
        expected = every_row.calibrated_every_row(*states, baskets, setting, 0.3)
    output = every_row.calibrated_every_row(*states, baskets, setting, 0.3)
    torch.testing.assert_close(output, expected, atol=1e-5, rtol=0)
    output.square().sum().backward()
    assert all(state.grad is not None and state.grad.isfinite().all() and state.grad.any() for state in states)
