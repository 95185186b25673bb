"""Texts in parts that can be held, whatever their number."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

WINDOW_TEXTS, WINDOW_CHARACTERS = 4096, 8_000_000  # of a stream: what is held and sorted at a time
FIRST_TEXTS = 512  # for a device that waits for them


def text_windows(
    texts: Iterable[str], most: int | None = None, characters: int | None = None, *, first: int | None = None
) -> Iterator[list[str]]:
    """Texts in windows of at most so many, each full when it has so many characters.

    With `first` the windows grow from that size, twofold each time: what waits for them has something to do early.
    """
    most, characters = most or WINDOW_TEXTS, characters or WINDOW_CHARACTERS
    now = most if first is None else min(first, most)
    window: list[str] = []
    size = 0
    for text in texts:
        window.append(text)
        size += len(text)
        if len(window) == now or size >= characters:
            yield window
            window, size, now = [], 0, min(2 * now, most)
    if window:
        yield window
