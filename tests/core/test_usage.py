"""What waits until a model is idle."""

from __future__ import annotations

from functools import partial

from torch import nn

from evenspan.core.usage import TURN, call_of, usage_of


def test_what_is_asked_for_again_waits_once() -> None:
    model, done = nn.Identity(), []
    twins: list[list[int]] = [[], []]  # equal, and not the same
    with call_of(model):
        for _ in range(3):
            for twin in twins:
                with TURN:
                    usage_of(model).when_idle(partial(done.append, twin))
        assert done == []
        assert len(usage_of(model)._waiting) == 2
    assert [id(one) for one in done] == [id(twin) for twin in twins]
    assert not usage_of(model)._waiting
