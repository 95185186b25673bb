"""A vector for each window of tokens."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from evenspan.evaluation.methods.base import Windowed


@dataclass(frozen=True)
class ChunksMax(Windowed):
    """A vector for each window of tokens, scored by the best one: what most people run."""

    kind: ClassVar[str] = "chunks-max"
