"""How far a run is, and what it did in the end."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass

from evenspan.indexing.plan import Shard
from evenspan.progress import ProgressBar


class IndexProgress(ProgressBar):
    """A progress bar over the bytes of a source, and the counts of what was committed."""

    def __init__(self, size: int | None, *, shown: bool) -> None:
        super().__init__("Indexing documents", size or None, shown=shown)  # a pipe has a size of 0
        self.documents = self.replaced = self.updated = self.tokens = self.truncated = 0
        self.began = time.perf_counter()

    def committed(self, shard: Shard, max_tokens: int) -> None:
        """Count a shard that is safe."""
        if shard.kept:
            self.updated += len(shard.entries)
        else:
            self.documents += len(shard.entries)
            self.replaced += sum(entry.replaces for entry in shard.entries)
            self.truncated += sum(entry.tokens > max_tokens for entry in shard.entries)
        self.tokens += shard.read
        seconds = max(time.perf_counter() - self.began, 1e-9)
        rates = f"{self.documents / seconds:,.0f} documents/s, {self.tokens / seconds:,.0f} tokens/s"
        self.note = f"{self.documents:,} documents, {rates}"
        self.advance(max(0, shard.position - self.done))


@dataclass(frozen=True)
class IndexSummary:
    """Counts of one run; `total` is what the index holds now."""

    store: str
    total: int
    added: int
    replaced: int
    unchanged: int
    tokens: int
    truncated: int
    rejected: Mapping[str, int]
    rejects: str | None
    encoding_seconds: float
    seconds: float
    device_seconds: float | None = None  # that the device was busy; None if it is not known, as of Ray's workers
    updated: int = 0  # whose metadata alone changed: they were not encoded again
    invalid: int = 0  # that left the index because their rows cannot be used any more
    pruned: int = 0  # that left it because they are gone from the source

    @property
    def documents(self) -> int:
        """Documents that were encoded."""
        return self.added + self.replaced

    @property
    def skipped(self) -> int:
        """Rows that could not be used."""
        return sum(self.rejected.values())

    def to_json(self) -> str:
        """All counts as a JSON object."""
        return json.dumps(asdict(self), indent=2)

    def __str__(self) -> str:
        rate = max(self.encoding_seconds, 1e-9)
        lines = [
            f"{self.store}: {self.total:,} documents",
            *(f"  {name:10} {getattr(self, name):,}" for name in ("added", "replaced", "unchanged")),
            *(f"  {name:10} {count:,}" for name in ("updated", "invalid", "pruned") if (count := getattr(self, name))),
            f"  tokens     {self.tokens:,} ({self.truncated:,} documents truncated)",
            f"  skipped    {self.skipped:,}" + (f", see {self.rejects}" if self.rejects else ""),
            *(f"    {reason}: {count:,}" for reason, count in sorted(self.rejected.items())),
            f"  time       {self.seconds:,.1f} s "
            f"({self.documents / rate:,.1f} documents/s, {self.tokens / rate:,.0f} tokens/s while encoding)",
        ]
        if self.device_seconds is not None:
            lines.append(f"  device     busy {min(1.0, self.device_seconds / rate):.0%} of the time of encoding")
        return "\n".join(lines)
