"""The way out of a process: whoever has something to say goes on at once, and a thread says it."""

from __future__ import annotations

import contextlib
import queue
import threading
from multiprocessing.connection import Connection
from typing import Any


class Outbox:
    """Sends what is put in from any thread, in order; what came together goes together, as a list."""

    def __init__(self, pipe: Connection) -> None:
        self._pipe = pipe
        self._messages: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="evenspan-sending", daemon=True)
        self._thread.start()

    def put(self, number: int | None, message: Any) -> None:
        """Say something about a request, or about none."""
        self._messages.put((number, message))

    def close(self) -> None:
        """Send what is left."""
        self._messages.put(None)
        self._thread.join()

    def _run(self) -> None:
        with contextlib.suppress(OSError):  # nobody listens any more: the thread that receives finds out, too
            while True:
                together = [self._messages.get()]
                with contextlib.suppress(queue.Empty):
                    while True:
                        together.append(self._messages.get_nowait())
                ended = None in together
                if said := [message for message in together if message is not None]:
                    self._pipe.send(said)
                if ended:
                    return
