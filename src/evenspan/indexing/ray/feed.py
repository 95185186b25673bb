"""Shards on their way into a Ray dataset, one after another as they are read: no round has to wait for the next."""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pyarrow
import pyarrow.ipc

from evenspan.indexing.plan import Shard
from evenspan.indexing.stores.base import Store

_WAITING = 500_000_000  # bytes on their way at a time
_DOCUMENT = 1000  # what a document takes in Python besides its text
NUMBER, IDS, SHARD = "_number", "_ids", "shard"
BUSY = "busy_seconds"  # of the device, for a shard


def pack(number: int, shard: Shard, *, keep_text: bool) -> bytes:
    """A shard as bytes: a single value, which Ray cannot take apart."""
    ids = [piece.ids for _, piece in shard.rows()]
    is_tokenized = all(own is not None for own in ids)
    table = shard.table(keep_text or not is_tokenized)
    if is_tokenized:
        table = table.append_column(IDS, pyarrow.array(ids, pyarrow.large_list(pyarrow.int32())))
    table = table.append_column(NUMBER, pyarrow.array(itertools.repeat(number, len(table)), size=len(table)))
    packed = pyarrow.BufferOutputStream()
    with pyarrow.ipc.new_stream(packed, table.schema) as stream:
        stream.write_table(table)
    return bytes(packed.getvalue().to_pybytes())


class Handoff:
    """An actor beside the driver: keeps what the driver has read until it is committed, for whoever asks, and asks again."""

    def __init__(self) -> None:
        self._shards: dict[int, list[Any] | None] = {}
        self._begun = Counter[int | str]()
        self._changed = asyncio.Condition()

    async def put(self, place: int, shard: list[Any] | None) -> None:
        """Take in the shard of a place, as a reference in a list, which Ray does not look up.

        An empty list takes the place of a shard that is committed; None says that there are no more.
        """
        async with self._changed:
            self._shards[place] = shard
            self._changed.notify_all()

    async def get(self, place: int) -> list[Any] | None:
        """What was put in a place, once it is there."""
        async with self._changed:
            await self._changed.wait_for(lambda: place in self._shards)
        return self._shards[place]

    async def begin(self, work: int | str) -> int:
        """Count how often a worker has begun with a shard, or with loading the model."""
        self._begun[work] += 1
        return self._begun[work]

    async def succeed(self, work: int | str) -> None:
        """Begin to count anew."""
        del self._begun[work]


def blocks(_: Any, handoff: Any) -> Iterator[Any]:
    """Every shard as a table of one row; the same ones in the same order whenever Ray begins again."""
    import ray

    for place in itertools.count():
        shard = ray.get(handoff.get.remote(place))
        if shard is None:
            return
        packed = ray.get(shard[0]) if shard else b""
        yield pyarrow.table({SHARD: pyarrow.array([packed], pyarrow.large_binary())})


class Feed:
    """A thread of the driver that hands shards over, as many at a time as may be on their way."""

    def __init__(
        self,
        ray: Any,
        shards: Iterable[Shard],
        store: Store,
        handoff: Any,
        keep: Callable[[Shard], None],
        *,
        keep_text: bool,
    ) -> None:
        self._ray, self._shards, self._store, self._handoff, self._keep = ray, shards, store, handoff, keep
        self._keep_text = keep_text
        self._waiting: dict[int, tuple[int, Shard, int]] = {}  # place, shard and weight by number
        self._changed = threading.Condition()
        self._stopped = False
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def waiting(self, number: int) -> Shard | None:
        """A shard that was written and is to be committed now; None if it was already: Ray made it twice."""
        with self._changed:
            return self._waiting[number][1] if number in self._waiting else None

    def committed(self, number: int) -> None:
        """Let go of a shard, and make room for the next."""
        with self._changed:
            place, _, _ = self._waiting.pop(number)
            self._changed.notify_all()
        self._handoff.put.remote(place, [])

    def stop(self) -> None:
        """Read no further."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()
        self._thread.join(timeout=2)  # it may itself wait for a pipe that nobody writes to

    def check(self) -> None:
        """Raise what went wrong while reading; after the last row, also if something has not come back."""
        if self._error is not None:
            raise self._error
        if self._waiting:
            raise RuntimeError(f"Ray returned without {len(self._waiting)} shards: run the same command again.")

    def _run(self) -> None:
        place = 0
        try:
            columns = self._store.columns()
            for shard in self._shards:
                if shard.kept:  # not for workers; it is committed while nobody else commits
                    if not self._wait(0):
                        break
                    self._keep(shard)
                    columns = shard.columns
                    continue
                if not shard.columns.keys() <= columns.keys():
                    # New columns are added while nobody writes: LanceDB cannot do both at once.
                    if not self._wait(0):
                        break
                    self._store.set_columns(shard.columns)
                    columns = shard.columns
                number = self._store.reserve()
                packed = pack(number, shard, keep_text=self._keep_text)
                weight = len(packed) + _DOCUMENT * len(shard.entries)
                if not self._wait(max(0, _WAITING - weight)):
                    break
                with self._changed:
                    self._waiting[number] = place, shard, weight
                self._ray.get(self._handoff.put.remote(place, [self._ray.put(packed)]))
                place += 1
        except BaseException as error:
            self._error = error
        finally:
            if not self._stopped:  # else Ray may be gone, and would be started again by this call
                self._handoff.put.remote(place, None)

    def _wait(self, most: int) -> bool:
        """Wait until no more than that is on its way; whether to go on."""

        def light() -> bool:
            return self._stopped or sum(weight for _, _, weight in self._waiting.values()) <= most

        with self._changed:
            self._changed.wait_for(light)
            return not self._stopped
