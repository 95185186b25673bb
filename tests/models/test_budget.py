"""How many tokens a batch has: more while that helps, fewer when memory runs out."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from evenspan.models import budget
from evenspan.models.budget import BATCH_TOKENS, TokenBudget, budget_for, usual_tokens

CPU, GPU = torch.device("cpu"), torch.device("cuda")


@pytest.fixture(autouse=True)
def much_room(monkeypatch) -> None:
    monkeypatch.setattr(budget, "_has_room", lambda: True)


def windows(own: TokenBudget, rates: dict[int, float]) -> list[int]:
    """The budgets of windows on a device that does so many tokens a second with batches of such a size."""
    used = []
    for _ in range(8):
        used.append(own.tokens)
        own.learn(own.tokens, [own.tokens] * 5, 5 * own.tokens / rates[own.tokens])
    return used


def test_it_grows_while_that_is_faster() -> None:
    rates = {16_384: 100.0, 32_768: 150.0, 65_536: 151.0, 131_072: 999.0}
    assert windows(TokenBudget(16_384, grows=True), rates) == [16_384, 32_768, 65_536] + [32_768] * 5
    always = dict(zip(rates, (1.0, 2.0, 3.0, 4.0), strict=True))
    assert windows(TokenBudget(16_384, grows=True), always) == [16_384, 32_768, 65_536] + [131_072] * 5
    assert windows(TokenBudget(16_384), rates) == [16_384] * 8


def test_windows_that_say_nothing_are_not_listened_to(monkeypatch) -> None:
    own = TokenBudget(grows=True)
    own.learn(own.tokens * 2, [8_192] * 5, 1.0)  # made for another budget
    own.learn(own.tokens, [4096] * 3, 1.0)  # too few batches
    assert own.tokens == BATCH_TOKENS
    monkeypatch.setattr(budget, "_has_room", lambda: False)
    own.learn(own.tokens, [4096] * 5, 1.0)
    assert (own.tokens, own.grows) == (BATCH_TOKENS, False)


def test_memory_that_runs_out_ends_growth() -> None:
    own = TokenBudget(65_536, grows=True)
    own.halve(60_000)
    assert (own.tokens, own.most, own.grows) == (30_000, 30_000, False)
    own.halve(1)
    assert own.tokens == 1


def test_small_models_have_larger_batches_on_a_gpu() -> None:
    def model(width: int) -> nn.Module:
        return nn.Sequential(
            nn.Embedding(1000, width, device="meta"), nn.Linear(width, width, bias=False, device="meta")
        )

    assert [usual_tokens(model(width), GPU) for width in (17_400, 9_000, 3_000)] == [32_768, 65_536, 131_072]
    assert usual_tokens(model(3_000), CPU) == BATCH_TOKENS
    small = model(3_000)
    assert budget_for(small, GPU) is not budget_for(small, GPU)
    assert budget_for(small, GPU, grows=True) is budget_for(small, GPU, grows=True)
    assert budget_for(small, GPU, 99, grows=True).grows is False
