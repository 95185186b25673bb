"""One process: the model computes while the next shard is read and the last one is written."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from evenspan.encoding import Encoder
from evenspan.indexing.columns import with_vectors
from evenspan.indexing.plan import Shard
from evenspan.indexing.progress import IndexProgress
from evenspan.indexing.stores.base import Store


def run_local(
    shards: Iterator[Shard], encoder: Encoder, store: Store, progress: IndexProgress, *, keep_text: bool
) -> None:
    """Encode, write and commit every shard, in order."""
    writer = store.writer()

    def save(shard: Shard, vectors: Any) -> Shard:
        store.set_columns(shard.columns)
        written = writer.write(store.reserve(), with_vectors(shard.table(keep_text), vectors))
        store.commit(written, shard.names())
        return shard

    with ThreadPoolExecutor(max_workers=1) as pool:
        saving: Future[Shard] | None = None
        for shard in shards:
            vectors = encoder.encode([document.text for document in shard.documents], tokens=shard.tokens)
            if saving is not None:
                progress.committed(saving.result(), encoder.max_tokens)
            saving = pool.submit(save, shard, vectors)
        if saving is not None:
            progress.committed(saving.result(), encoder.max_tokens)
