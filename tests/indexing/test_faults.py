"""Whatever happens to a run, the same command ends with the index of a run to which nothing happened.

`benchmarks/index_faults.py` does the same many times over, and with Ray.
"""

from __future__ import annotations

import itertools
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import pytest
from helpers import indexes
from helpers.held import HeldCommand
from helpers.indexes import BEFORE_COMMIT, STORES, committed, content, rows, write_jsonl

import evenspan
from evenspan.cli import main
from evenspan.indexing.plan import ShardSize
from evenspan.indexing.stores.postgres_sql import PostgresWriter

DOCUMENTS, SHARD = 600, 20


@pytest.fixture(scope="module")
def setting(tmp_path_factory):
    """A model, a corpus, and the index as it should be."""
    folder = tmp_path_factory.mktemp("faults")
    model, corpus = indexes.saved_model(folder), write_jsonl(folder / "corpus.jsonl", rows(DOCUMENTS))
    undisturbed = f"parquet:{folder / 'undisturbed'}"
    evenspan.index(model, corpus, undisturbed, shard=ShardSize(SHARD), progress=False, device="cpu")
    return model, corpus, content(undisturbed)


@pytest.fixture(scope="module")
def server():
    with indexes.postgres_server() as started:
        yield started


def command(setting, store: str, table: str | None = None) -> list[str]:
    model, corpus, _ = setting
    more = ["--shard-documents", str(SHARD), "--device", "cpu", "--quiet"]
    return ["index", model, str(corpus), store, *more, *(["--table", table] if table else [])]


@pytest.mark.parametrize("kind", STORES)
def test_sigkill(kind, setting, tmp_path, request) -> None:
    """Between writing a shard and committing it, and then at any moment of the run that goes on."""
    store, table = f"{kind}:{tmp_path / 'index'}", None
    if kind == "postgres":
        store, table = request.getfixturevalue("server").get_uri(), "killed"
    arguments = command(setting, store, table)
    process = HeldCommand(arguments, tmp_path, BEFORE_COMMIT[kind], 3)
    process.wait()
    process.kill()
    assert committed(store, table) == 3 * SHARD
    process = HeldCommand(arguments, tmp_path, BEFORE_COMMIT[kind], 15)
    process.wait_until(lambda: committed(store, table) >= 6 * SHARD)
    time.sleep(random.random() / 10)
    process.kill()
    assert 6 * SHARD <= committed(store, table) <= 18 * SHARD < DOCUMENTS
    assert main(arguments) == 0
    assert content(store, table) == setting[2]


def test_postgres_goes_away_for_a_moment(setting, tmp_path, server) -> None:
    """The run waits for it, in the middle of a transaction."""
    patient = "import evenspan.indexing.stores.postgres_sql as sql; sql._TRIES = (1.0,) * 300"
    store = server.get_uri()
    process = HeldCommand(command(setting, store, "moment"), tmp_path, BEFORE_COMMIT["postgres"], 3, patient)
    process.wait()
    server.stop()
    process.release()
    time.sleep(0.5)
    server.ensure_postgres_running()
    process.finish()
    assert content(store, "moment") == setting[2]


def test_postgres_goes_away_for_longer(setting, tmp_path, server, monkeypatch) -> None:
    """The run gives up, and the same command goes on."""
    store, write, shards = server.get_uri(), PostgresWriter.write, itertools.count()

    def interrupted(*arguments: Any) -> Any:
        if next(shards) == 3:
            server.stop()
        return write(*arguments)

    monkeypatch.chdir(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr("evenspan.indexing.stores.postgres_sql._TRIES", (0.1,))
        patch.setattr(PostgresWriter, "write", interrupted)
        with pytest.raises(OSError, match="PostgreSQL"):
            evenspan.index(*setting[:2], store, table="longer", shard=ShardSize(SHARD), progress=False, device="cpu")
    server.ensure_postgres_running()
    assert committed(store, "longer") == 3 * SHARD
    assert main(command(setting, store, "longer")) == 0
    assert content(store, "longer") == setting[2]


@pytest.mark.parametrize("kind", ["lance", "parquet"])
def test_damaged_files(kind, setting, tmp_path) -> None:
    store = f"{kind}:{tmp_path / 'index'}"
    assert main(command(setting, store)) == 0
    if kind == "lance":  # the last one written is that of the compacted table
        files = sorted(
            (tmp_path / "index" / "documents.lance" / "data").iterdir(), key=lambda file: -file.stat().st_mtime
        )
    else:
        files = sorted((tmp_path / "index").glob("shard-*.parquet"))
        files[2].unlink()
    os.truncate(files[0], files[0].stat().st_size // 2)
    if kind == "lance":
        with pytest.raises((OSError, RuntimeError)):
            content(store)
    assert main(["verify", store, "--repair"]) == 0
    assert main(command(setting, store)) == 0
    assert content(store) == setting[2]


@pytest.mark.parametrize("kind", ["lance", "parquet"])
def test_a_full_disk(kind, setting, capsys) -> None:
    if sys.platform != "linux" or os.geteuid() != 0:
        pytest.skip("only root can mount a small file system")
    # Not among pytest's own folders: if this is killed, pytest cannot remove what is mounted, and fails ever after.
    disk = Path(tempfile.mkdtemp(prefix="disk"))
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=300k", "tmpfs", str(disk)], capture_output=True)
    if mounted.returncode:
        pytest.skip(f"cannot mount a small file system: {mounted.stderr.decode().strip()}")
    try:
        store = f"{kind}:{disk / 'index'}"
        assert main(command(setting, store)) == 2
        assert "No space left" in (said := capsys.readouterr().err) or "full" in said
        assert committed(store) < DOCUMENTS
        subprocess.run(["mount", "-o", "remount,size=64m", str(disk)], check=True)
        assert main(command(setting, store)) == 0
        assert content(store) == setting[2]
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=True)
        disk.rmdir()
