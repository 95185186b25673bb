"""Who uses a model at this moment: calls on their way, and open `with` blocks and their owners.

Kept beside the models, not in them: copies and saved models know nothing of it.
"""

from __future__ import annotations

import asyncio
import functools
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

from torch import nn

# One lock for all models, held for moments: whoever changes a model, or what is known of its use, has it.
TURN = threading.RLock()


@dataclass(frozen=True)
class Owner:
    """The thread, and in it the asyncio task, that opened a block; the event loop if that was one of its callbacks."""

    thread: threading.Thread
    task: asyncio.Task[Any] | asyncio.AbstractEventLoop | None

    @classmethod
    def now(cls) -> Owner:
        """Who is running this."""
        try:
            return cls(threading.current_thread(), asyncio.current_task() or asyncio.get_running_loop())
        except RuntimeError:  # no event loop runs in this thread
            return cls(threading.current_thread(), None)

    def encloses(self, other: Owner) -> bool:
        """Whether all that the other does now is inside this one's block: the same thread or task, or an event loop in it."""
        return self.thread is other.thread and self.task in (None, other.task)


@dataclass(eq=False)
class Block:
    """A `with` block that changes a model for a while."""

    owner: Owner
    is_plain: bool  # whether it asks for the plain model: any number of such blocks may overlap
    before: Any  # what the model goes back to


class Usage:
    """The calls and blocks of one model."""

    def __init__(self) -> None:
        self.calls = 0
        self.blocks: list[Block] = []
        self._waiting: dict[tuple[object, ...], functools.partial[None]] = {}

    def refuse_others(self, *, is_plain: bool = False) -> None:
        """Raise if another thread or task has a block open that a change would reach into."""
        owner = Owner.now()
        for block in self.blocks:
            if not block.owner.encloses(owner) and not (is_plain and block.is_plain):
                other = "thread" if block.owner.thread is not owner.thread else "task"
                raise RuntimeError(
                    f"Another {other} has this model in a `with` block of evenspan, and a model has one calibration at a "
                    f"time. Calibrate it once for all of them with evenspan.calibrate(model), or give each {other} a copy "
                    "of its own (copy.deepcopy(model))."
                )

    def when_idle(self, action: functools.partial[None]) -> None:
        """Do something as soon as no call is on its way: at once, if there is none. The same action waits once."""
        # A server has calls that end with it: what is asked for again and again meanwhile must not pile up.
        self._waiting.setdefault((action.func, *map(id, action.args)), action)
        self._settle()

    def end_call(self) -> None:
        """Count a call that has ended."""
        self.calls -= 1
        self._settle()

    def _settle(self) -> None:
        while not self.calls and self._waiting:
            self._waiting.pop(next(iter(self._waiting)))()


_usages: WeakKeyDictionary[nn.Module, Usage] = WeakKeyDictionary()


def usage_of(model: nn.Module) -> Usage:
    """How a model is used; to be looked at and changed by whoever has the `TURN`."""
    with TURN:
        return _usages.setdefault(model, Usage())


@contextmanager
def call_of(model: nn.Module) -> Iterator[None]:
    """A call of a model: while it lasts, nothing that it needs is taken away."""
    with TURN:
        usage = usage_of(model)
        usage.calls += 1
    try:
        yield
    finally:
        with TURN:
            usage.end_call()


@contextmanager
def block_of(
    model: nn.Module, enter: Callable[[], Any], leave: Callable[[Any], object], *, is_plain: bool = False
) -> Iterator[None]:
    """A block on a model; raises at once if it would overlap with one of another thread or task.

    `enter` changes the model and returns what `leave` needs to change it back. Blocks of one thread or task that overlap
    and do not nest (generators that hold them open) are found out when the first of them ends: that raises then.
    """
    with TURN:
        usage = usage_of(model)
        usage.refuse_others(is_plain=is_plain)
        block = Block(Owner.now(), is_plain, enter())
        usage.blocks.append(block)
    try:
        yield
    finally:
        with TURN:
            place = usage.blocks.index(block)
            del usage.blocks[place]
            later = usage.blocks[place:]
            if later:  # the first of them will change back in place of this one
                later[0].before = block.before
            else:
                leave(block.before)
    if later and not (block.is_plain and all(other.is_plain for other in later)):
        raise RuntimeError(
            "Two `with` blocks of evenspan overlapped on one model: one that was opened later, perhaps by a generator, is "
            "still open, and what was encoded since then in both has its calibration. Nest the blocks, or give each a copy "
            "of the model (copy.deepcopy(model))."
        )
