"""Reading ahead in a thread."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from typing import Any, TypeVar

Item = TypeVar("Item")


class Prefetched(Iterator[Item]):
    """Runs an iterator in a thread of its own, one item ahead: reading goes on while the model computes."""

    def __init__(self, items: Iterator[Item]) -> None:
        self._queue: queue.Queue[tuple[str, Any]] = queue.Queue(maxsize=1)
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(items,), daemon=True)
        self._thread.start()

    def __next__(self) -> Item:
        kind, value = self._queue.get()
        if kind == "item":
            item: Item = value
            return item
        self._queue.put((kind, value))  # for whoever asks again
        if kind == "error":
            raise value
        raise StopIteration

    def close(self) -> None:
        """Stop the thread and wait for it, unless it waits itself, for a pipe that nobody writes to."""
        self._stopped.set()
        self._thread.join(timeout=10)

    def _run(self, items: Iterator[Item]) -> None:
        try:
            for item in items:
                if not self._offer("item", item):
                    break
            else:
                self._offer("end", None)
        except BaseException as error:
            self._offer("error", error)
        finally:
            close = getattr(items, "close", None)
            if close is not None:
                close()

    def _offer(self, kind: str, value: Any) -> bool:
        while not self._stopped.is_set():
            try:
                self._queue.put((kind, value), timeout=0.1)
            except queue.Full:
                continue
            return True
        return False
