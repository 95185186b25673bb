"""What encoding costs, measured on a few documents."""

from __future__ import annotations

import time
from collections.abc import Sequence

from evenspan.encoding import Encoder
from evenspan.evaluation.methods import Method
from evenspan.progress import ProgressBar

DOCUMENTS, ROUNDS = 8, 2


def relative_costs(
    encoder: Encoder, methods: Sequence[Method], texts: Sequence[str], bar: ProgressBar
) -> dict[str, float]:
    """The time to encode documents by each method, as a multiple of the first one's: the shortest of a few turns of each."""
    few = list(texts[:: max(1, len(texts) // DOCUMENTS)][:DOCUMENTS])
    seconds: dict[str, float] = {}
    for turn in range(ROUNDS):
        for method in methods:
            if not turn:
                method.encode(encoder, few[:1])  # a first batch is verified, which takes longer
            start = time.perf_counter()
            method.encode(encoder, few)
            taken = time.perf_counter() - start
            seconds[method.name] = min(taken, seconds.get(method.name, taken))
            bar.advance()
    base = max(seconds[methods[0].name], 1e-9)
    return {name: taken / base for name, taken in seconds.items()}
