"""Indexing on a Ray cluster of more than one node and GPU, which are lost while it runs."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from helpers import indexes
from helpers.held import HeldCommand
from helpers.indexes import content, rows, write_jsonl

import evenspan
import evenspan.indexing.ray.feed
import evenspan.indexing.reading
from evenspan.indexing.plan import ShardSize

ray = pytest.importorskip("ray", reason="Ray is not installed")
pytestmark = [pytest.mark.cluster, pytest.mark.filterwarnings("ignore")]  # warnings of Ray's own
SHARD = ShardSize(20)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """A node with two GPUs that are only declared."""
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
    monkeypatch.setattr(evenspan.indexing.reading, "_ROWS", 50)
    monkeypatch.setattr(evenspan.indexing.ray.feed, "_WAITING", 100_000)


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
    """Processes of a name in the cluster of this test, not in that of another."""
    found = []
    for process in psutil.Process().children(recursive=True):
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
@pytest.mark.parametrize(
    ("victim", "kind"),
    [
        ("MapBatches(blocks)", "parquet"),
        ("MapWorker(MapBatches(ShardEncoder))", "postgres"),
    ],
)
def test_a_lost_process(cluster, model, request, tmp_path, victim: str, kind: str) -> None:
    entries, killed = rows(400), []
    store = {"store": f"parquet:{tmp_path / 'ray'}"}
    if kind == "postgres":
        store = {"store": request.getfixturevalue("server").get_uri(), "table": "killed"}

    def kill() -> None:
        for process in processes(victim):
            process.kill()
            killed.append(process)

    index(model, entries, f"parquet:{tmp_path / 'one'}", device="cpu")
    index(model, disturbed(entries, 300, kill), **store, engine="ray", rejects=tmp_path / "rejects")
    assert killed
    assert content(**store) == content(f"parquet:{tmp_path / 'one'}")


@pytest.mark.usefixtures("little_room")
@pytest.mark.parametrize("lost", ["worker", "node", "driver"])
def test_two_nodes(cluster, model, tmp_path, lost: str) -> None:
    """An actor on each; what the second node, or the driver, has had under way when it is lost is done again."""
    corpus, store = write_jsonl(tmp_path / "corpus.jsonl", rows(400)), f"parquet:{tmp_path / 'ray'}"
    node, killed, on_nodes = cluster.add_node(num_cpus=3), [], {"engine": "ray", "device": "cpu", "workers": 2}
    cluster.wait_for_nodes()

    def kill() -> None:
        if lost == "node":
            cluster.remove_node(node, allow_graceful=False)
        for process in processes("MapWorker(MapBatches(ShardEncoder))") if lost == "worker" else ():
            process.kill()
            killed.append(process)

    index(model, corpus, f"parquet:{tmp_path / 'one'}", device="cpu")
    if lost == "driver":
        arguments = ["index", model, str(corpus), store, "--engine", "ray", "--address", cluster.address, "--quiet"]
        arguments += ["--workers", "2", "--device", "cpu", "--shard-documents", str(SHARD.documents)]
        driver = HeldCommand(arguments, tmp_path, "evenspan.indexing.stores.parquet.ParquetStore.commit", 5)
        driver.wait()
        driver.kill()
        assert index(model, corpus, store, **on_nodes).unchanged == 5 * SHARD.documents
    else:
        assert index(model, disturbed(rows(400), 300, kill), store, **on_nodes).added == 400
    assert bool(killed) == (lost == "worker")
    assert content(store) == content(f"parquet:{tmp_path / 'one'}")
    if lost != "node":
        cluster.remove_node(node)


@pytest.mark.usefixtures("little_room")
def test_what_was_read_is_kept_when_a_source_breaks_off(cluster, model, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    entries, store = rows(400), "parquet:relative"  # the workers have another working directory

    def fail() -> None:
        raise OSError("the source is gone")

    with pytest.raises(OSError, match="the source is gone"):
        index(model, disturbed(entries, 300, fail), store, engine="ray")
    summary = index(model, entries, store, device="cpu")
    assert (summary.unchanged, summary.added) == (300, 100)
    assert len(content(store)) == 400


def test_what_a_worker_cannot_do_is_said_in_a_line(cluster, tmp_path) -> None:
    model = indexes.saved_model(tmp_path)
    gone = disturbed(rows(5), 1, lambda: Path(model, "config.json").unlink())  # after the driver has loaded it
    with pytest.raises(RuntimeError, match=r"^On a Ray worker: .*Fix that and run") as raised:
        index(model, gone, f"parquet:{tmp_path / 'ray'}", engine="ray")
    assert "\n" not in str(raised.value)


def test_addresses(cluster, model, tmp_path) -> None:
    store = f"parquet:{tmp_path / 'ray'}"
    with pytest.raises(ValueError, match="connected to a Ray cluster already"):
        index(model, rows(5), store, engine="ray", address="auto")
    with pytest.raises(ValueError, match="workers must be at least 1"):
        index(model, rows(5), store, engine="ray", workers=0)


def test_without_an_address_no_cluster_is_joined(cluster, model, tmp_path) -> None:
    corpus, seen = write_jsonl(tmp_path / "corpus.jsonl", rows(40)), False
    command = [sys.executable, "-m", "evenspan.cli", "index", model, str(corpus), f"parquet:{tmp_path / 'own'}"]
    with subprocess.Popen([*command, "--engine", "ray", "--quiet"], stdout=subprocess.DEVNULL) as process:
        while process.poll() is None:
            with contextlib.suppress(psutil.Error):  # some are gone by the time they are asked
                family = psutil.Process(process.pid).children(recursive=True)
                seen = seen or any("gcs_server" in one.name() for one in family)
            time.sleep(0.1)
    assert process.returncode == 0
    assert seen
