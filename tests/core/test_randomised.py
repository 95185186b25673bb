"""The paper's randomised check: the attention function against the slow float64 reference.

Both poolings, padding on either side and packed batches, 1 to 8 rows, 1 to 46 baskets, all variants and `first_token`
options, three dtypes, grouped heads, and scores as extreme as they come. A sample runs always; all 25,920 cases with
`make test-thorough`.
"""

from __future__ import annotations

import itertools
import os
import random
from collections import defaultdict
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from helpers.layouts import LAYOUTS, SCORES, batch, extreme, layout_of
from helpers.reference import attention_output
from torch import nn

from evenspan.calibration import Calibration
from evenspan.core.attention import CalibratedPass, calibrated_attention
from evenspan.core.calls import baskets_of
from evenspan.core.install import attach

DEVICE = os.environ.get("EVENSPAN_TEST_DEVICE", "cpu")  # with "cuda" the fused kernels are what is checked
DTYPES = (torch.float32, torch.float16, torch.bfloat16)
VARIANTS = ("soft", "uniform", "hard")
FIRST = (None, "keep", "equal", 0.0, 0.2, 0.9)
GRID = list(itertools.product(("cls", "last"), LAYOUTS, DTYPES, VARIANTS, FIRST, SCORES))  # 1,296 combinations
CASES = 25_920
# The row is computed in float32, in which scores of several hundred, as drawn here, carry an error of a few 1e-5.
# Half precision rounds the outputs, which are of order 1.
LIMITS = {torch.float32: 5e-5, torch.float16: 2e-3, torch.bfloat16: 1.6e-2}


@dataclass
class Case:
    pooling: str
    layout: str
    dtype: torch.dtype
    setting: Calibration
    lengths: list[int]
    query: list[torch.Tensor]  # one (heads, tokens, head_dim) per sequence
    key: list[torch.Tensor]
    value: list[torch.Tensor]
    softcap: float | None


def draw(number: int) -> Case:
    """Case `number` of the check, the same on every machine."""
    pooling, layout, dtype, variant, first_token, scores = GRID[number % len(GRID)]
    pick = random.Random(number)
    torch.manual_seed(number)
    basket_size = pick.randint(1, 6)
    lengths = [pick.randint(1, 46 * basket_size + 2) for _ in range(pick.randint(1, 8))]
    lengths[0] = pick.randint(1, 46) * basket_size + pick.randint(1, 2)  # at least one row that is long enough
    groups, size = pick.choice([1, 2]), pick.choice([4, 8])
    heads = groups * pick.choice([1, 2])
    sequences = []
    for length in lengths:
        query, key, value = (torch.randn(count, length, size) for count in (heads, groups, groups))
        pooled = 0 if pooling == "cls" else length - 1
        extreme(scores, query[:, pooled], key, basket_size, pick)
        sequences.append([tensor.to(dtype) for tensor in (query, key, value)])
    setting = Calibration(
        variant,
        strength=pick.choice([0.05, 0.5, 1.0]),
        basket_size=basket_size,
        first_token=first_token,
        self_mass=pick.choice([0.0, 0.3, 0.9]) if variant == "hard" else 0.3,
    )
    query, key, value = (list(tensors) for tensors in zip(*sequences, strict=True))
    softcap = pick.choice([None, None, 20.0])
    setting = replace(setting, partition=pick.choice(["paper", "even"]))
    return Case(pooling, layout, dtype, setting, lengths, query, key, value, softcap)


def pooled_rows(case: Case) -> np.ndarray:
    """What the attention function writes to the pooled rows.  # (rows, heads, head_dim)"""
    baskets = baskets_of(layout_of(case.lengths, case.layout), case.pooling, case.setting)
    baskets = baskets.to(DEVICE)
    query, key, value = (batch(tensors, case.layout).to(DEVICE) for tensors in (case.query, case.key, case.value))
    module = StubAttention()
    attach({0: module})
    calibrated_pass = CalibratedPass(case.setting, frozenset([0]), baskets)
    output, _ = calibrated_attention(
        module, query, key, value, None, calibrated_pass, scaling=0.5, softcap=case.softcap
    )
    return output.flatten(0, 1)[baskets.pooled].double().cpu().numpy()


class StubAttention(nn.Module):
    """An attention module as the package sees it; its own attention is left to `eager_attention_forward` below."""

    def __init__(self) -> None:
        super().__init__()
        self.config = SimpleNamespace(_attn_implementation="eager")


def eager_attention_forward(module: Any, query: torch.Tensor, *args: Any, **kwargs: Any) -> tuple[torch.Tensor, None]:
    return torch.full_like(query.transpose(1, 2), torch.nan), None


ALL_ATTENTION_FUNCTIONS = SimpleNamespace(get_interface=lambda name, default: default)


def deviation(case: Case) -> float:
    """The largest difference from the reference, over all rows that are calibrated; the others must be untouched."""
    setting = case.setting
    names = ("variant", "strength", "basket_size", "self_mass", "partition")
    arguments = {name: getattr(setting, name) for name in names}
    worst = 0.0
    for row, output in enumerate(pooled_rows(case)):
        length = case.lengths[row]
        pooled, isolated = (0, None) if case.pooling == "cls" else (length - 1, 0)
        if length - (1 if isolated is None else 2) < setting.basket_size * (
            1.0 if setting.partition == "paper" else 1.5
        ):
            assert np.isnan(output).all(), "a row shorter than one basket must keep the model's own output"
            continue
        query, key, value = (tensors[row].double().numpy() for tensors in (case.query, case.key, case.value))
        expected = attention_output(
            query[:, pooled],
            key,
            value,
            scale=0.5,
            pooled=pooled,
            isolated=isolated,
            softcap=case.softcap,
            first_token=setting.first_token,
            **arguments,
        )
        difference = np.abs(output - expected).max()
        assert np.isfinite(difference)
        worst = max(worst, difference)
    return worst


def run(numbers: Any, record: Any) -> None:
    worst: dict[torch.dtype, float] = defaultdict(float)
    for number in numbers:
        case = draw(number)
        off = deviation(case)
        assert off <= LIMITS[case.dtype], f"case {number}: off by {off} in {case.dtype}"
        worst[case.dtype] = max(worst[case.dtype], off)
    for dtype, value in worst.items():
        record(f"worst deviation in {str(dtype).removeprefix('torch.')}: {value:.2e}")


@pytest.mark.parametrize("part", range(3))
def test_sample(part, report) -> None:
    """One case in twenty: every combination of the grid once."""
    run(range(part, len(GRID), 3), report)


@pytest.mark.thorough
@pytest.mark.parametrize("part", range(20))
def test_all_cases(part, report) -> None:
    run(range(part * len(GRID), (part + 1) * len(GRID)), report)


def test_the_grid_covers_the_paper() -> None:
    assert 20 * len(GRID) == CASES
