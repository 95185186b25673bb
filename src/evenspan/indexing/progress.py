"""How far a run is: documents and tokens a second, and the time left by what is still to be read."""

from __future__ import annotations

import time

from evenspan.indexing.plan import Shard
from evenspan.progress import ProgressBar


class IndexProgress(ProgressBar):
    """A progress bar over the bytes of a source, and the counts of what was committed."""

    def __init__(self, size: int | None, *, shown: bool) -> None:
        super().__init__("Indexing documents", size or None, shown=shown)  # a pipe has a size of 0
        self.documents = self.replaced = self.tokens = self.truncated = 0
        self.began = time.perf_counter()

    def committed(self, shard: Shard, max_tokens: int) -> None:
        """Count a shard that is safe."""
        self.documents += len(shard.documents)
        self.replaced += shard.replaced
        self.tokens += shard.read
        self.truncated += sum(count > max_tokens for count in shard.tokens)
        seconds = max(time.perf_counter() - self.began, 1e-9)
        self.note = (
            f"{self.documents:,} documents, {self.documents / seconds:,.0f} documents/s, "
            f"{self.tokens / seconds:,.0f} tokens/s"
        )
        self.advance(max(0, shard.position - self.done))
