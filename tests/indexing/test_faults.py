"""Whatever happens to a run, the same command ends with the index of a run to which nothing happened.

`benchmarks/index_faults.py` does the same many times over, and with Ray.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from helpers import indexes
from helpers.indexes import STORES, content, rows, write_jsonl

import evenspan
from evenspan.cli import main
from evenspan.encoding import Encoder
from evenspan.indexing.plan import ShardSize

DOCUMENTS, SHARD = 600, 20

# A shard takes its time, however fast the machine is: what is to be disturbed must not be over before it is noticed.
SLOWLY = """
import sys, time
from evenspan.cli import main
from evenspan.encoding import Encoder
at_full_speed = Encoder.encode
def encode(*arguments, **options):
    time.sleep(0.1)
    return at_full_speed(*arguments, **options)
Encoder.encode = encode
sys.exit(main())
"""


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


def start(arguments: list[str], folder: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-c", SLOWLY, *arguments],
        cwd=folder,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )


def committed(store: str, table: str | None = None) -> int:
    try:
        with evenspan.open_index(store, table=table) as index:
            return len(index)
    except (OSError, ValueError, RuntimeError):  # there is none yet
        return 0


def wait_for(documents: int, process: subprocess.Popen[bytes], store: str, table: str | None = None) -> None:
    deadline = time.monotonic() + 120
    while committed(store, table) < documents and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.02)
    assert process.poll() is None, process.stderr.read().decode()


@pytest.mark.parametrize("kind", STORES)
def test_sigkill(kind, setting, tmp_path, request) -> None:
    store, table = f"{kind}:{tmp_path / 'index'}", None
    if kind == "postgres":
        store, table = request.getfixturevalue("server").get_uri(), "killed"
    arguments = command(setting, store, table)
    for documents in (3 * SHARD, 12 * SHARD):
        process = start(arguments, tmp_path)
        wait_for(documents, process, store, table)
        time.sleep(random.random() / 20)
        process.kill()
        assert process.wait() == -signal.SIGKILL
        process.stderr.close()
    before = committed(store, table)
    assert 0 < before < DOCUMENTS
    process = start(arguments, tmp_path)
    assert process.wait() == 0, process.stderr.read().decode()
    process.stderr.close()
    assert content(store, table) == setting[2]


def test_postgres_goes_away_for_a_while(setting, tmp_path, server, monkeypatch) -> None:
    """Gone for a moment, the run waits for it; gone for longer, the same command goes on."""
    store = server.get_uri()
    process = start(command(setting, store, "moment"), tmp_path)
    wait_for(3 * SHARD, process, store, "moment")
    server.stop()
    time.sleep(0.5)
    server.ensure_postgres_running()
    assert process.wait() == 0, process.stderr.read().decode()
    process.stderr.close()
    assert content(store, "moment") == setting[2]

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("evenspan.indexing.stores.postgres_sql._TRIES", (0.1,))
    monkeypatch.setattr(Encoder, "encode", slowly(Encoder.encode))
    stopper = threading.Thread(target=lambda: (wait_until(store, "longer"), server.stop()))
    stopper.start()
    with pytest.raises(OSError, match="PostgreSQL"):
        evenspan.index(*setting[:2], store, table="longer", shard=ShardSize(SHARD), progress=False, device="cpu")
    stopper.join()
    monkeypatch.undo()
    monkeypatch.chdir(tmp_path)
    server.ensure_postgres_running()
    assert 0 < committed(store, "longer") < DOCUMENTS
    assert main(command(setting, store, "longer")) == 0
    assert content(store, "longer") == setting[2]


def slowly(encode):
    def patiently(*arguments, **options):
        time.sleep(0.1)
        return encode(*arguments, **options)

    return patiently


def wait_until(store: str, table: str) -> None:
    while committed(store, table) < 3 * SHARD:
        time.sleep(0.02)


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
def test_a_full_disk(kind, setting, tmp_path, capsys) -> None:
    if sys.platform != "linux" or os.geteuid() != 0:
        pytest.skip("only root can mount a small file system")
    disk = tmp_path / "disk"
    disk.mkdir()
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
