"""Rankings made one."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

RANK_OFFSET = 60  # added to every rank: the larger, the less the first places count


def fuse(rankings: Sequence[Iterable[str]], k: int = RANK_OFFSET) -> list[tuple[str, float]]:
    """Names by the sum of 1 / (k + rank) over rankings (Cormack et al., 2009), best first; equal ones in their order.

    Example:
        >>> [name for name, _ in fuse([["a", "b"], ["b", "c"]])]
        ['b', 'a', 'c']
    """
    scores: dict[str, float] = defaultdict(float)
    for ranking in rankings:
        for rank, name in enumerate(ranking, 1):
            scores[name] += 1 / (k + rank)
    return sorted(scores.items(), key=lambda entry: (-round(entry[1], 12), entry[0]))
