"""Which of the documents in memory an audit looks at."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from evenspan.corpus.texts import storable


def sample_texts(
    texts: Sequence[str], names: Sequence[str] | None, sample: int | None, seed: int, notes: list[str]
) -> tuple[list[str], list[str]]:
    """The documents to look at and their names, in their own order; what is no text or empty is left out and counted."""
    if isinstance(texts, str):
        raise TypeError("texts must be a list of documents, not one string.")
    texts = list(texts)
    if names is not None and len(names) != len(texts):
        raise ValueError(f"There are {len(names)} names for {len(texts)} texts.")
    usable = [
        number for number, text in enumerate(texts) if isinstance(text, str) and text.strip() and storable(text) == text
    ]
    if left_out := len(texts) - len(usable):
        notes.append(f"{left_out} of {len(texts)} texts are empty, no text, or not UTF-8, and were left out.")
    if not usable:
        raise ValueError("There is no text to look at: texts must hold at least one document.")
    if sample is not None and sample < len(usable):
        drawn = np.random.default_rng(seed).choice(len(usable), size=sample, replace=False)
        notes.append(f"A sample of {sample} of {len(usable)} documents.")
        usable = [usable[number] for number in sorted(drawn)]
    of_usable = [number if names is None else names[number] for number in usable]
    return [texts[number] for number in usable], [storable(str(name)) for name in of_usable]
