"""The same pipeline on Ray Data: many GPUs, many machines.

The driver reads the source and cuts shards; actors, each with the model loaded once, encode them and write them to the
store; the driver commits what they wrote. A shard is one row, so Ray repeats it as a whole when a worker dies; when the driver
dies, what was not committed does not count, and the same command goes on.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import pyarrow
import pyarrow.ipc

from evenspan.indexing.catalogue import Written
from evenspan.indexing.columns import with_vectors
from evenspan.indexing.planning import Shard
from evenspan.indexing.progress import Progress
from evenspan.indexing.settings import NO_CALIBRATION, IndexSettings
from evenspan.indexing.stores.base import ShardWriter, Store

if TYPE_CHECKING:
    from evenspan.indexing.running import IndexOptions

_ROUND_CHARACTERS = 500_000_000  # texts that wait in Ray's object store at a time
_NUMBER, _TOKENS, _SHARD = "_number", "_tokens", "shard"


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
        (packed,) = block[_SHARD]
        block = pyarrow.ipc.open_stream(packed.as_buffer()).read_all()
        (number,) = block[_NUMBER].unique().to_pylist()
        tokens = block[_TOKENS].to_pylist()
        vectors = self._encoder.encode(block["text"].to_pylist(), tokens)
        dropped = [_NUMBER, _TOKENS] + ([] if self._keep_text else ["text"])
        written = self._writer.write(number, with_vectors(block.drop_columns(dropped), vectors))
        return pyarrow.Table.from_pylist([asdict(written)])


def run_on_ray(
    shards: Iterator[Shard], settings: IndexSettings, store: Store, progress: Progress, options: IndexOptions
) -> None:
    """Encode, write and commit every shard, round by round."""
    try:
        import ray
    except ImportError as error:
        raise ImportError("engine='ray' needs Ray: pip install 'evenspan[ray]'.") from error
    started = not ray.is_initialized()
    if started:
        ray.init(address=options.address, log_to_driver=False, logging_level=logging.WARNING)
    try:
        ray.data.DataContext.get_current().enable_progress_bars = False
        for some in _rounds(shards):
            _run_round(ray, some, settings, store, progress, options)
    finally:
        if started:
            ray.shutdown()


def _rounds(shards: Iterator[Shard]) -> Iterator[list[Shard]]:
    """As many shards at a time as may wait; the next are read when these are done."""
    for first in shards:
        some, characters = [first], first.characters
        while characters < _ROUND_CHARACTERS and (following := next(shards, None)) is not None:
            some.append(following)
            characters += following.characters
        yield some


def _run_round(
    ray: Any, shards: list[Shard], settings: IndexSettings, store: Store, progress: Progress, options: IndexOptions
) -> None:
    store.set_columns(shards[-1].columns)
    waiting = {store.reserve(): shard for shard in shards}
    blocks = [ray.put(_block(number, shard)) for number, shard in waiting.items()]
    workers, gpus, cpus = _resources(ray, len(blocks), options)
    written = ray.data.from_arrow_refs(blocks).map_batches(
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
        num_gpus=gpus,
        num_cpus=cpus,
    )
    for row in written.iter_rows():
        record = Written(**row)
        shard = waiting.pop(record.number, None)
        if shard is not None:  # None: Ray made it twice
            store.commit(record, shard.names())
            progress.committed(shard, settings.max_tokens or 2**31)
    if waiting:
        raise RuntimeError(f"Ray returned without {len(waiting)} of {len(shards)} shards: run the same command again.")


def _block(number: int, shard: Shard) -> Any:
    """A shard as one row: Ray puts rows together and takes them apart as it likes."""
    table = shard.table(keep_text=True)
    table = table.append_column(_NUMBER, pyarrow.array(itertools.repeat(number, len(table)), size=len(table)))
    table = table.append_column(_TOKENS, pyarrow.array(shard.tokens))
    packed = pyarrow.BufferOutputStream()
    with pyarrow.ipc.new_stream(packed, table.schema) as stream:
        stream.write_table(table)
    return pyarrow.table({_SHARD: pyarrow.array([packed.getvalue().to_pybytes()], pyarrow.large_binary())})


def _resources(ray: Any, shards: int, options: IndexOptions) -> tuple[int, float, float]:
    """How many actors, and the GPUs and CPUs of each: one for each GPU, or else for two CPUs."""
    there = ray.cluster_resources()
    gpus, cpus = int(there.get("GPU", 0)), int(there.get("CPU", 1))
    use_gpus = gpus > 0 and options.device != "cpu"
    workers = options.workers or (gpus if use_gpus else max(1, cpus // 2))
    workers = max(1, min(workers, shards))
    return workers, 1 if use_gpus else 0, 1 if use_gpus else max(1, min(2, cpus // workers))
