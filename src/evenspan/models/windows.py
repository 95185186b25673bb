"""Texts in parts that can be held, whatever their number."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from typing import TypeVar

Item = TypeVar("Item")

WINDOW_TEXTS, WINDOW_CHARACTERS = 4096, 8_000_000  # of a stream: what is held and sorted at a time
FIRST_TEXTS = 512  # for a device that waits for them


def window_sizes(first: int = FIRST_TEXTS, most: int = WINDOW_TEXTS) -> Iterator[int]:
    """How many texts each window has: twofold each time, so that what waits for the first has something to do early."""
    for doublings in itertools.count():
        yield min(first << doublings, most)


def in_windows(items: list[Item]) -> Iterator[list[Item]]:
    """A sequence in windows that grow."""
    start = 0
    for size in window_sizes():
        if start >= len(items):
            return
        yield items[start : start + size]
        start += size


def text_windows(
    texts: Iterable[str], most: int | None = None, characters: int | None = None, *, first: int | None = None
) -> Iterator[list[str]]:
    """Texts in windows of at most so many, each full when it has so many characters.

    With `first` the windows grow from that size, twofold each time: what waits for them has something to do early.
    """
    most, characters = most or WINDOW_TEXTS, characters or WINDOW_CHARACTERS
    sizes = window_sizes(first or most, most)
    now = next(sizes)
    window: list[str] = []
    size = 0
    for text in texts:
        window.append(text)
        size += len(text)
        if len(window) == now or size >= characters:
            yield window
            window, size, now = [], 0, next(sizes)
    if window:
        yield window
