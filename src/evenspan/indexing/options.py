"""Where documents are encoded, and how: what both engines and Ray's workers are told."""

from __future__ import annotations

from dataclasses import dataclass

from evenspan.errors import require_extra
from evenspan.indexing.plan import ShardSize

ENGINES = ("local", "ray")


@dataclass(frozen=True)
class EncodingOptions:
    """Checked before any work; see `index`."""

    engine: str
    address: str | None
    workers: int | None
    device: str | None
    document_prompt: str | None
    query_prompt: str | None
    batch_tokens: int
    keep_text: bool
    shard: ShardSize
    progress: bool

    def __post_init__(self) -> None:
        if self.engine not in ENGINES:
            raise ValueError(f"engine must be one of {', '.join(ENGINES)}, not {self.engine!r}.")
        if self.engine == "local" and (self.address is not None or self.workers is not None):
            raise ValueError("An address and a number of workers are for the engine 'ray'.")
        for name, value in (("workers", self.workers), ("batch_tokens", self.batch_tokens)):
            if value is not None and value < 1:
                raise ValueError(f"{name} must be at least 1, not {value}.")
        if self.engine == "ray":
            require_extra("ray", "The engine 'ray'", "ray")
