"""How far a run is: documents and tokens a second, and the time left by what is still to be read."""

from __future__ import annotations

import time

from tqdm import tqdm

from evenspan.indexing.plan import Shard

_FORMAT = "{desc}{percentage:3.0f}%|{bar}| {elapsed}<{remaining}{postfix}"
_FORMAT_UNKNOWN = "{desc}{elapsed}{postfix}"


class Progress:
    """A progress bar over the bytes of a source, and the counts of what was committed."""

    def __init__(self, size: int | None, *, shown: bool) -> None:
        self.documents = self.replaced = self.tokens = self.truncated = 0
        self._began = time.perf_counter()
        self._bar = tqdm(total=size, disable=not shown, bar_format=_FORMAT if size else _FORMAT_UNKNOWN)

    def committed(self, shard: Shard, max_tokens: int) -> None:
        """Count a shard that is safe."""
        self.documents += len(shard.documents)
        self.replaced += shard.replaced
        self.tokens += shard.read
        self.truncated += sum(count > max_tokens for count in shard.tokens)
        seconds = max(time.perf_counter() - self._began, 1e-9)
        self._bar.set_postfix_str(
            f"{self.documents:,} documents, {self.documents / seconds:,.0f} documents/s, "
            f"{self.tokens / seconds:,.0f} tokens/s",
            refresh=False,
        )
        self._bar.update(max(0, shard.position - self._bar.n))
        self._bar.refresh()

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.close()
