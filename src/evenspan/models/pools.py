"""Pools of processes, whose copies of a calibrated model stay as they were when the pool was started."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_ANOTHER = "Stop it and start another."


class CalibratedQueue:
    """The queue into a pool of calibrated copies, which takes work of their setting and no other.

    It stands in the pool of the process that started it, where also a model that was restored since may use it.
    """

    def __init__(self, queue: Any, setting: str | None) -> None:
        self._queue, self._setting = queue, setting

    def __getattr__(self, name: str) -> Any:
        return getattr(self._queue, name)

    def put(self, work: tuple[int, Any, dict[str, Any]]) -> None:
        """Hand over a chunk of texts and the options they are encoded with."""
        number, texts, options = work
        if options.get("setting") != self._setting:
            state = "plain" if self._setting is None else f"calibrated ({self._setting})"
            raise RuntimeError(
                f"This pool was started when the model was {state}, and its processes have copies of the model as it was "
                f"then. {_ANOTHER}"
            )
        self._queue.put([number, texts, {name: value for name, value in options.items() if name != "setting"}])

    @staticmethod
    def check(pool: Mapping[str, Any]) -> None:
        """Refuse a pool of plain copies."""
        if not isinstance(pool["input"], CalibratedQueue):
            raise RuntimeError(
                "This pool was started before the model was calibrated as it is now, and its processes have copies of the "
                f"model as it was then. {_ANOTHER}"
            )
