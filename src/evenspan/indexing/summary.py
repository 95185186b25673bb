"""What a run did."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass


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
            f"  added      {self.added:,}",
            f"  replaced   {self.replaced:,}",
            f"  unchanged  {self.unchanged:,}",
            f"  tokens     {self.tokens:,} ({self.truncated:,} documents truncated)",
            f"  skipped    {self.skipped:,}" + (f", see {self.rejects}" if self.rejects else ""),
            *(f"    {reason}: {count:,}" for reason, count in sorted(self.rejected.items())),
            f"  time       {self.seconds:,.1f} s "
            f"({self.documents / rate:,.1f} documents/s, {self.tokens / rate:,.0f} tokens/s while encoding)",
        ]
        return "\n".join(lines)
