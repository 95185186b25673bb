"""The same pipeline on Ray Data: many GPUs, many machines.

The driver reads the source and cuts shards; actors, each with the model loaded once, encode them and write them to the
store; the driver commits what they wrote. All of it is one dataset that is read as it is worked off, a shard a row: Ray
repeats it as a whole when a worker dies. When the driver dies, what was not committed does not count, and the same command
goes on.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import os
from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import pyarrow
import pyarrow.ipc

from evenspan.indexing.catalogue import Written
from evenspan.indexing.columns import with_vectors
from evenspan.indexing.planning import Shard
from evenspan.indexing.progress import Progress
from evenspan.indexing.ray_feed import NUMBER, SHARD, TOKENS, Feed, Handoff, blocks
from evenspan.indexing.settings import NO_CALIBRATION, IndexSettings
from evenspan.indexing.stores.base import ShardWriter, Store

if TYPE_CHECKING:
    from evenspan.indexing.running import IndexOptions


class ShardEncoder:
    """An actor: loads the model once, then encodes and writes shard after shard."""

    def __init__(self, settings: IndexSettings, writer: ShardWriter, options: dict[str, Any]) -> None:
        from evenspan.baselines import uncalibrated
        from evenspan.calibration import Calibration
        from evenspan.indexing.batches import DocumentEncoder
        from evenspan.indexing.settings import model_digest
        from evenspan.loading import load
        from evenspan.models import calibrate

        device, self._keep_text = options["device"], settings.text
        model = load(settings.model, **({} if device is None else {"device": device}))
        if model_digest(model) != settings.weights:
            raise RuntimeError(f"{settings.model!r} has other weights on this machine than where the run was started.")
        if settings.calibration == NO_CALIBRATION:
            self._plain = uncalibrated(model)
            self._plain.__enter__()
        else:
            calibrate(model, Calibration.parse(settings.calibration))
        self._encoder = DocumentEncoder(model, options["document_prompt"], options["batch_tokens"])
        self._writer = writer

    def __call__(self, block: Any) -> Any:
        """Encode and write one shard; returns what the driver needs to commit it."""
        (packed,) = block[SHARD]
        if not len(packed.as_buffer()):  # committed before Ray read it again
            return pyarrow.Table.from_pylist([])
        block = pyarrow.ipc.open_stream(packed.as_buffer()).read_all()
        (number,) = block[NUMBER].unique().to_pylist()
        tokens = block[TOKENS].to_pylist()
        vectors = self._encoder.encode(block["text"].to_pylist(), tokens)
        dropped = [NUMBER, TOKENS] + ([] if self._keep_text else ["text"])
        written = self._writer.write(number, with_vectors(block.drop_columns(dropped), vectors))
        return pyarrow.Table.from_pylist([asdict(written)])


def run_on_ray(
    shards: Iterator[Shard], settings: IndexSettings, store: Store, progress: Progress, options: IndexOptions
) -> None:
    """Encode, write and commit every shard."""
    try:
        import ray
        import ray.data
    except ImportError as error:
        raise ImportError("engine='ray' needs Ray: pip install 'evenspan[ray]'.") from error
    first = list(itertools.islice(shards, 1))
    if not first:
        return  # nothing is new, and no model has to be loaded anywhere
    started = not ray.is_initialized()
    if started:
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # Ray would report to its makers
        ray.init(address=options.address, log_to_driver=False, logging_level=logging.WARNING)
        _hush()
    try:
        workers, share = _resources(ray, options)
        first += itertools.islice(shards, workers - 1)
        workers = min(workers, len(first))
        with _feed(ray, itertools.chain(first, shards), store) as (feed, dataset):
            written = dataset.map_batches(
                ShardEncoder,
                fn_constructor_args=(
                    settings,
                    store.writer(),
                    {
                        "device": options.device,
                        "document_prompt": options.document_prompt,
                        "batch_tokens": options.batch_tokens,
                    },
                ),
                batch_size=1,  # a shard; whole blocks are not to be had on GPUs
                batch_format="pyarrow",
                compute=ray.data.ActorPoolStrategy(size=workers),
                **share,
            )
            # Nothing is fetched ahead: what is written is committed at once.
            for batch in written.iter_batches(batch_size=None, batch_format="pyarrow", prefetch_batches=0):
                for row in batch.to_pylist():
                    record = Written(**row)
                    shard = feed.waiting(record.number)
                    if shard is not None:
                        store.commit(record, shard.names())
                        feed.committed(record.number)
                        progress.committed(shard, settings.max_tokens or 2**31)
            feed.check()
    finally:
        if started:
            ray.shutdown()


def _hush() -> None:
    """Keep Ray Data's news out of the progress bar; its warnings are shown, and everything is in its own log file."""
    logging.getLogger("ray.data._internal.progress").setLevel(logging.ERROR)  # that its own bar is off
    for handler in logging.getLogger("ray.data").handlers:
        if isinstance(handler, logging.StreamHandler):
            handler.setLevel(logging.WARNING)


@contextlib.contextmanager
def _feed(ray: Any, shards: Iterator[Shard], store: Store) -> Iterator[tuple[Feed, Any]]:
    """What hands shards over, and the dataset they arrive in, a block each."""
    beside = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(
        ray.get_runtime_context().get_node_id(), soft=False
    )
    handoff = ray.remote(Handoff).options(num_cpus=0, scheduling_strategy=beside).remote()
    feed = Feed(ray, shards, store, handoff)
    try:
        # A shard a block: Ray would wait for them to fill one.
        with _data_context(ray, enable_progress_bars=False, target_max_block_size=1):
            # Out of one row come all shards; by a task that takes no CPU: the actors may have them all.
            start = ray.data.from_arrow(pyarrow.table({"start": [0]}))
            yield feed, start.map_batches(blocks, fn_kwargs={"handoff": handoff}, num_cpus=0)
    finally:
        feed.stop()
        ray.kill(handoff)


@contextlib.contextmanager
def _data_context(ray: Any, **values: Any) -> Iterator[None]:
    """Settings of Ray Data, for now: the process may have other datasets."""
    context = ray.data.DataContext.get_current()
    before = {name: getattr(context, name) for name in values}
    try:
        for name, value in values.items():
            setattr(context, name, value)
        yield
    finally:
        for name, value in before.items():
            setattr(context, name, value)


def _resources(ray: Any, options: IndexOptions) -> tuple[int, dict[str, int]]:
    """How many actors, and what each gets: one for each GPU, or else for two CPUs."""
    there = ray.cluster_resources()
    gpus, cpus = int(there.get("GPU", 0)), int(there.get("CPU", 1))
    if gpus > 0 and options.device != "cpu":
        return options.workers or gpus, {"num_gpus": 1}
    workers = options.workers or max(1, cpus // 2)
    return workers, {"num_cpus": max(1, min(2, cpus // workers))}
