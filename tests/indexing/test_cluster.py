"""Indexing on a Ray cluster of more than one node and GPU, which are lost while it runs."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import indexes
import psutil
import pytest
from indexes import content, rows

import evenspan
import evenspan.indexing.planning
import evenspan.indexing.ray_feed
from evenspan.indexing.planning import ShardSize

ray = pytest.importorskip("ray", reason="Ray is not installed")
pytestmark = pytest.mark.filterwarnings("ignore")  # of Ray's own
SHARD = ShardSize(20)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """Two nodes, the first with two GPUs that are only declared; the second has what a CPU worker needs."""
    from ray.cluster_utils import Cluster

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_AUTH_MODE", "disabled")
        started = Cluster(initialize_head=True, head_node_args={"num_cpus": 2, "num_gpus": 2})
        ray.init(address=started.address, log_to_driver=False)
        try:
            yield started
        finally:
            ray.shutdown()
            started.shutdown()


@pytest.fixture
def little_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few rows and shards on their way at a time, so that reading goes along with the work."""
    monkeypatch.setattr(evenspan.indexing.planning, "_ROWS", 50)
    monkeypatch.setattr(evenspan.indexing.ray_feed, "_WAITING_CHARACTERS", 20_000)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return indexes.saved_model(tmp_path_factory.mktemp("model"))


def disturbed(entries: list[dict[str, Any]], at: int, disturb: Callable[[], None]) -> Iterator[dict[str, Any]]:
    """Rows, and in the middle of them something else."""
    for number, entry in enumerate(entries):
        if number == at:
            disturb()
        yield entry


def processes(name: str) -> list[psutil.Process]:
    """Ray's processes of a name."""
    found = []
    for process in psutil.process_iter():
        try:
            if name in " ".join(process.cmdline()):
                found.append(process)
        except psutil.Error:  # gone by now
            continue
    return found


def index(model: str, source: Any, store: str, **options: Any) -> evenspan.indexing.IndexSummary:
    return evenspan.index(model, source, store, shard=SHARD, progress=False, **options)


@pytest.mark.usefixtures("little_room")
def test_gpus_have_an_actor_each_and_new_columns_come_in_time(cluster, model, tmp_path) -> None:
    entries = rows(400)
    entries[350]["seen"] = "late"  # the first rows settle the columns
    seen: list[int] = []

    def look() -> None:  # the first actor may have done much before the second has loaded its model
        while len(seen) < 600 and 2 not in seen:
            seen.append(len(processes("MapWorker(MapBatches(ShardEncoder))")))
            time.sleep(0.1)

    index(model, entries, f"lance:{tmp_path / 'one'}", device="cpu")
    summary = index(model, disturbed(entries, 300, look), f"lance:{tmp_path / 'ray'}", engine="ray")
    assert summary.added == 400
    assert max(seen) == 2
    assert content(f"lance:{tmp_path / 'ray'}") == content(f"lance:{tmp_path / 'one'}")


@pytest.mark.usefixtures("little_room")
@pytest.mark.parametrize("victim", ["MapBatches(blocks)", "MapWorker(MapBatches(ShardEncoder))"])
def test_a_lost_process(cluster, model, tmp_path, victim: str) -> None:
    entries, killed = rows(400), []

    def kill() -> None:
        for process in processes(victim):
            process.kill()
            killed.append(process)

    index(model, entries, f"parquet:{tmp_path / 'one'}", device="cpu")
    index(model, disturbed(entries, 300, kill), f"parquet:{tmp_path / 'ray'}", engine="ray")
    assert killed
    assert content(f"parquet:{tmp_path / 'ray'}") == content(f"parquet:{tmp_path / 'one'}")


@pytest.mark.usefixtures("little_room")
def test_a_lost_node(cluster, model, tmp_path) -> None:
    entries, node = rows(400), cluster.add_node(num_cpus=3)
    cluster.wait_for_nodes()
    index(model, entries, f"parquet:{tmp_path / 'one'}", device="cpu")
    index(
        model,
        disturbed(entries, 300, lambda: cluster.remove_node(node, allow_graceful=False)),
        f"parquet:{tmp_path / 'ray'}",
        engine="ray",
        device="cpu",
        workers=2,
    )
    assert content(f"parquet:{tmp_path / 'ray'}") == content(f"parquet:{tmp_path / 'one'}")


@pytest.mark.usefixtures("little_room")
def test_a_source_that_breaks_off(cluster, model, tmp_path) -> None:
    entries, store = rows(400), f"parquet:{tmp_path / 'ray'}"

    def fail() -> None:
        raise OSError("the source is gone")

    with pytest.raises(OSError, match="the source is gone"):
        index(model, disturbed(entries, 300, fail), store, engine="ray")
    summary = index(model, entries, store, engine="ray")
    assert (summary.unchanged, summary.added) == (300, 100)  # what was read is kept


def test_nothing_new_needs_no_cluster(model, tmp_path) -> None:
    store = f"parquet:{tmp_path / 'index'}"
    index(model, rows(5), store, device="cpu")
    assert index(model, rows(5), store, device="cpu", engine="ray", address="nowhere:1").unchanged == 5
