"""Run a generator in a thread of its own, ahead of whoever takes what it makes."""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Generator, Iterator
from typing import Any, TypeVar

Item = TypeVar("Item")


@contextlib.contextmanager
def prefetched(items: Generator[Item, None, None]) -> Iterator[Iterator[Item]]:
    """Run a generator in a thread of its own, one item ahead: reading goes on while the model computes."""
    ready: queue.Queue[tuple[Any, BaseException | None]] = queue.Queue(maxsize=1)
    stopped = threading.Event()

    def offer(item: Item | None, end: BaseException | None = None) -> None:
        while not stopped.is_set():
            with contextlib.suppress(queue.Full):
                ready.put((item, end), timeout=0.1)
                return

    def read() -> None:
        end: BaseException = StopIteration()
        try:
            with contextlib.closing(items):
                for item in items:
                    offer(item)
                    if stopped.is_set():
                        return
        except BaseException as error:
            end = error
        offer(None, end)

    def received() -> Iterator[Item]:
        while True:
            item, end = ready.get()
            if isinstance(end, StopIteration):
                return
            if end is not None:
                raise end
            yield item

    thread = threading.Thread(target=read, daemon=True)
    thread.start()
    try:
        yield received()
    finally:
        # Wait for the thread, unless it waits itself, for a pipe that nobody writes to.
        stopped.set()
        thread.join(timeout=10)
