"""Ways to turn documents into vectors: as the model does, calibrated, and what people do instead.

Every method is a frozen dataclass whose `name` says it all: it keys caches and names results. A new one adds a file here
and a row to `BASELINES`.
"""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from evenspan.evaluation.methods.base import Method, Plain, Vectors
from evenspan.evaluation.methods.bm25 import Bm25
from evenspan.evaluation.methods.calibrated import Calibrated
from evenspan.evaluation.methods.chunks_max import ChunksMax
from evenspan.evaluation.methods.hybrid import Hybrid
from evenspan.evaluation.methods.late_chunking import LateChunking
from evenspan.evaluation.methods.segment_average import SegmentAverage
from evenspan.evaluation.methods.token_average import TokenAverage
from evenspan.evaluation.methods.window_average import WindowAverage

__all__ = [
    "BASELINES", "Bm25", "Calibrated", "ChunksMax", "Hybrid", "LateChunking", "Method", "Plain", "SegmentAverage",
    "TokenAverage", "Vectors", "WindowAverage", "baseline",
]  # fmt: skip

BASELINES: dict[str, type[Method]] = {
    method.kind: method
    for method in (Plain, SegmentAverage, WindowAverage, TokenAverage, LateChunking, ChunksMax, Bm25, Hybrid)
}


def baseline(name: str, **options: Any) -> Method:
    """A baseline by its name, e.g. `baseline("window-average", window=128)`; options of others are ignored."""
    if name not in BASELINES:
        raise ValueError(f"Unknown baseline {name!r}. Available: {', '.join(BASELINES)}.")
    known = {field.name for field in fields(BASELINES[name])}
    return BASELINES[name](**{option: value for option, value in options.items() if option in known})
