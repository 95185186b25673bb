"""Which documents an audit looks at."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def sampled(
    texts: Sequence[str], names: Sequence[str] | None, sample: int | None, seed: int, notes: list[str]
) -> tuple[list[str], list[str]]:
    """The documents to look at, in their own order; what is no text or empty is left out and counted."""
    if isinstance(texts, str):
        raise TypeError("texts must be a list of documents, not one string.")
    texts = list(texts)
    if names is not None and len(names) != len(texts):
        raise ValueError(f"There are {len(names)} names for {len(texts)} texts.")
    usable = [number for number, text in enumerate(texts) if isinstance(text, str) and text.strip() and _storable(text)]
    if len(usable) < len(texts):
        notes.append(
            f"{len(texts) - len(usable)} of {len(texts)} texts are empty, no text, or not UTF-8, and were left out."
        )
    if not usable:
        raise ValueError("There is no text to look at: texts must hold at least one document.")
    if sample is not None and sample < len(usable):
        drawn = np.random.default_rng(seed).choice(len(usable), size=sample, replace=False)
        notes.append(f"A sample of {sample} of {len(usable)} documents.")
        usable = [usable[number] for number in sorted(drawn)]
    chosen = list(names) if names is not None else range(len(texts))
    safe = [str(chosen[number]).encode("utf-8", "replace").decode("utf-8") for number in usable]
    return [texts[number] for number in usable], safe


def _storable(text: str) -> bool:
    """Whether a text has no halves of surrogate pairs, which tokenizers and files refuse."""
    return text.encode("utf-8", "replace").decode("utf-8") == text
