"""How far a run is, and what it did in the end."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass

from evenspan.encoding import Encoder
from evenspan.formatting import counted, share
from evenspan.indexing.plan import Shard
from evenspan.indexing.reading import Rejects
from evenspan.models.reading import UNLIMITED
from evenspan.progress import ProgressBar


class IndexProgress(ProgressBar):
    """A progress bar over the bytes of a source, and the counts of what was committed."""

    def __init__(self, size: int | None, *, shown: bool, label: str = "Indexing documents") -> None:
        super().__init__(label, size or None, shown=shown)  # a pipe has a size of 0
        self.documents = self.replaced = self.updated = self.tokens = self.truncated = self.unread = 0
        self.chunks: int | None = None

    def committed(self, shard: Shard, max_tokens: int) -> None:
        """Count a shard that is safe."""
        if shard.kept:
            self.updated += len(shard.entries)
        else:
            self.documents += len(shard.entries)
            self.replaced += sum(entry.replaces for entry in shard.entries)
            self.truncated += sum(any(piece.tokens > max_tokens for piece in entry.pieces) for entry in shard.entries)
            self.unread += sum(shard.tokens) - shard.read
            if any(entry.pieces[0].span is not None for entry in shard.entries):
                self.chunks = (self.chunks or 0) + shard.pieces
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
    device_seconds: float | None = None  # that the device was busy (of Ray's workers: on average); None if it was not
    updated: int = 0  # whose metadata alone changed: they were not encoded again
    invalid: int = 0  # that left the index because their rows cannot be used any more
    pruned: int = 0  # that left it because they are gone from the source
    chunks: int | None = None  # of these documents; None where they are whole
    unread: int = 0  # tokens beyond the model's limit
    max_tokens: int | None = None  # that limit; None if there is none
    room: int | None = None  # how many of them are left for text, besides special tokens and the prompt

    @classmethod
    def of(
        cls, store: str, total: int, progress: IndexProgress, unchanged: int, rejected: Rejects, encoder: Encoder
    ) -> IndexSummary:
        """What a run has counted so far."""
        seconds = time.perf_counter() - progress.began
        limited = encoder.max_tokens < UNLIMITED
        return cls(
            store=store,
            total=total,
            added=progress.documents - progress.replaced,
            replaced=progress.replaced,
            unchanged=unchanged,
            tokens=progress.tokens,
            truncated=progress.truncated,
            rejected=dict(rejected.reasons),
            rejects=str(rejected.path) if rejected.reasons else None,
            encoding_seconds=seconds,
            seconds=seconds,
            updated=progress.updated,
            chunks=progress.chunks,
            unread=progress.unread,
            max_tokens=encoder.max_tokens if limited else None,
            room=encoder.max_tokens - encoder.count_tokens([""])[0] if limited else None,
        )

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

    @property
    def truncation(self) -> str | None:
        """What the model never reads of the documents that were encoded, in a sentence."""
        if not self.documents or self.room is None:
            return None
        if not self.truncated:
            kind = "document" if self.chunks is None else "chunk"
            return f"Nothing is cut off: every {kind} fits into the {self.room:,} tokens of text that the model reads."
        unread = f"{share(self.unread, self.tokens + self.unread)} of the text is never read"
        advice = "" if self.chunks is not None else " To read all of it, use --chunk-tokens."
        cut = f"{self.truncated:,} of {self.documents:,} documents ({share(self.truncated, self.documents)})"
        return f"Truncated after {self.room:,} tokens of text: {cut}; {unread}.{advice}"

    def __str__(self) -> str:
        lines = [
            *filter(None, [self.truncation]),
            f"{self.store}: {counted(self.total, 'document')}",
            *(f"  {name:10} {getattr(self, name):,}" for name in ("added", "replaced", "unchanged")),
            *(f"  {name:10} {count:,}" for name in ("updated", "invalid", "pruned") if (count := getattr(self, name))),
            *([] if self.chunks is None else [f"  chunks     {self.chunks:,}"]),
            f"  tokens     {self.tokens:,}",
            f"  skipped    {self.skipped:,}" + (f", see {self.rejects}" if self.rejects else ""),
            *(f"    {reason}: {count:,}" for reason, count in sorted(self.rejected.items())),
            *self._closing(),
        ]
        return "\n".join(lines)

    def _closing(self) -> list[str]:
        rate = max(self.encoding_seconds, 1e-9)
        lines = [
            f"  time       {self.seconds:,.1f} s "
            f"({self.documents / rate:,.1f} documents/s, {self.tokens / rate:,.0f} tokens/s while encoding)",
        ]
        if self.device_seconds is not None:
            lines.append(f"  device     busy {min(1.0, self.device_seconds / rate):.0%} of the encoding time")
        return lines
