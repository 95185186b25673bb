"""The same pipeline on Ray Data: many GPUs, many machines.

The driver reads the source and cuts shards; actors, each with the model loaded once, encode them and write them to the
store; the driver commits what they wrote. All of it is one dataset that is read as it is worked off, a shard a row: Ray
repeats it as a whole when a worker dies. When the driver dies, what was not committed does not count, and the same command
goes on.
"""

from __future__ import annotations

import contextlib
import itertools
from collections import deque
from collections.abc import Callable, Generator, Iterator
from dataclasses import replace
from typing import Any

from evenspan.indexing.manifest import Written
from evenspan.indexing.plan import EncodingOptions, Shard
from evenspan.indexing.ray.feed import BUSY, Feed, Handoff, blocks
from evenspan.indexing.ray.session import data_context, plain_errors, ray_session
from evenspan.indexing.ray.worker import ShardEncoder
from evenspan.indexing.settings import IndexSettings
from evenspan.indexing.stores.base import Store
from evenspan.indexing.summary import IndexProgress

_FEW_SHARDS = 8  # of so many, no more workers are started than have something to do


def run_on_ray(
    shards: Iterator[Shard], settings: IndexSettings, store: Store, progress: IndexProgress, options: EncodingOptions
) -> float:
    """Encode, write and commit every shard; returns for how many seconds the workers' devices were busy, on average."""
    busy = 0.0
    first = deque(itertools.islice(shards, 1))
    if not first:
        return busy  # nothing is new, and no model has to be loaded anywhere
    with ray_session(options.address) as ray:
        workers, share = _resources(ray, options)
        looked_for = min(workers, _FEW_SHARDS)
        first.extend(itertools.islice(shards, looked_for - 1))
        if len(first) < looked_for:
            workers = len(first)  # that is all there is

        def keep(shard: Shard) -> None:
            shard.save(store, None, options.keep_text)
            progress.committed(shard, settings.max_tokens or 2**31)

        with _feed(ray, _drained(first, shards), store, keep, keep_text=options.keep_text) as (feed, handoff, dataset):
            written = dataset.map_batches(
                ShardEncoder,
                fn_constructor_args=(settings, store.writer(), handoff, replace(options, workers=workers)),
                batch_size=1,  # a shard; whole blocks are not to be had on GPUs
                batch_format="pyarrow",
                compute=ray.data.ActorPoolStrategy(size=workers),
                **share,
            )
            with contextlib.closing(_rows(written)) as rows, plain_errors(ray):
                for row in rows:
                    busy += row.pop(BUSY) / workers
                    record = Written(**row)
                    shard = feed.waiting(record.number)
                    if shard is not None:
                        store.commit(record, shard.names())
                        feed.committed(record.number)
                        progress.committed(shard, settings.max_tokens or 2**31)
            feed.check()
    return busy


def _drained(first: deque[Shard], others: Iterator[Shard]) -> Iterator[Shard]:
    """First the ones, then the others; none is held on to."""
    while first:
        yield first.popleft()
    yield from others


def _rows(dataset: Any) -> Generator[dict[str, Any], None, None]:
    """The rows of a dataset as they come; nothing is fetched ahead, so that what is written is committed at once."""
    batches = iter(dataset.iter_batches(batch_size=None, batch_format="pyarrow", prefetch_batches=0))
    try:
        for batch in batches:
            yield from batch.to_pylist()
    finally:
        if hasattr(batches, "close"):
            batches.close()  # and with it the actors, which would otherwise wait for the garbage collector


@contextlib.contextmanager
def _feed(
    ray: Any, shards: Iterator[Shard], store: Store, keep: Callable[[Shard], None], *, keep_text: bool
) -> Iterator[tuple[Feed, Any, Any]]:
    """What hands shards over, on this side and on the other, and the dataset they arrive in, a block each."""
    beside = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(
        ray.get_runtime_context().get_node_id(), soft=False
    )
    handoff = ray.remote(Handoff).options(num_cpus=0, scheduling_strategy=beside).remote()
    feed = Feed(ray, shards, store, handoff, keep, keep_text=keep_text)
    try:
        # A shard a block: Ray would wait for them to fill one.
        # A shard may take long, and so may whoever writes to a pipe: that is no reason to stop.
        settings = {"enable_progress_bars": False, "target_max_block_size": 1, "execution_no_progress_timeout_s": -1}
        with data_context(ray, **settings):
            # Out of one row come all shards; by a task that takes no CPU: the actors may have them all.
            start = ray.data.from_items([{"start": 0}])
            yield feed, handoff, start.map_batches(blocks, fn_kwargs={"handoff": handoff}, num_cpus=0)
    finally:
        feed.stop()
        ray.kill(handoff)


def _resources(ray: Any, options: EncodingOptions) -> tuple[int, dict[str, int]]:
    """How many actors, and what each gets: one for each GPU, or else for two CPUs."""
    there = ray.cluster_resources()
    gpus, cpus = int(there.get("GPU", 0)), int(there.get("CPU", 1))
    if gpus > 0 and options.device != "cpu":
        return options.workers or gpus, {"num_gpus": 1}
    workers = options.workers or max(1, cpus // 2)
    largest = max((int(node["Resources"].get("CPU", 0)) for node in ray.nodes() if node["Alive"]), default=1)
    return workers, {"num_cpus": max(1, min(2, cpus // workers, largest))}
