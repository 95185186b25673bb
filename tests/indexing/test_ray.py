"""The same pipeline on Ray; `benchmarks/index_faults.py` kills its workers and its driver."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time

import psutil
import pytest
from helpers import indexes
from helpers.held import PATIENCE
from helpers.indexes import content, rows, write_jsonl

import evenspan
from evenspan.indexing.plan import ShardSize

pytest.importorskip("ray", reason="Ray is not installed")


def test_a_killed_worker_and_an_index_equal_to_that_of_one_process(tmp_path) -> None:
    """The driver gets the last rows when the workers are dead: on no machine is it done before."""
    model, corpus = indexes.saved_model(tmp_path), write_jsonl(tmp_path / "corpus.jsonl", rows(1200))
    undisturbed, store = f"parquet:{tmp_path / 'undisturbed'}", f"parquet:{tmp_path / 'ray'}"
    chunks = {"calibration": "none", "chunk_tokens": 24, "overlap": 8}
    evenspan.index(model, corpus, undisturbed, shard=ShardSize(30), progress=False, device="cpu", **chunks)
    arguments = ["index", model, "-", store, "--shard-documents", "30", "--device", "cpu", "--quiet", "--json"]
    arguments += ["--calibration", "none", "--chunk-tokens", "24", "--overlap", "8"]
    environment = {**os.environ, "RAY_AUTH_MODE": "disabled"}
    lines = corpus.read_bytes().splitlines(keepends=True)
    with subprocess.Popen(
        [sys.executable, "-m", "evenspan.cli", *arguments, "--engine", "ray"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment,
    ) as driver:  # fmt: skip
        driver.stdin.write(b"".join(lines[:1100]))  # a thousand are read at a time
        driver.stdin.flush()
        wait_for_a_shard(store, driver)
        workers = [
            one
            for one in psutil.Process(driver.pid).children(recursive=True)
            if "ShardEncoder" in " ".join(one.cmdline())
        ]
        for worker in workers:
            worker.send_signal(signal.SIGKILL)
        printed, errors = driver.communicate(b"".join(lines[1100:]), timeout=PATIENCE)
    assert driver.returncode == 0, errors.decode()
    summary = json.loads(printed)
    assert 0 < summary["device_seconds"] <= summary["encoding_seconds"]
    assert workers
    assert content(store) == content(undisturbed)
    assert len(content(store)) > 600, "chunks"


def test_nobody_answers_and_nothing_new_needs_no_answer(model_folder, tmp_path) -> None:
    store, nowhere = f"parquet:{tmp_path / 'index'}", {"engine": "ray", "address": "127.0.0.1:1"}
    with pytest.raises(OSError, match=r"No Ray cluster answers at 127\.0\.0\.1:1"):
        evenspan.index(model_folder, rows(5), store, progress=False, device="cpu", **nowhere)
    evenspan.index(model_folder, rows(5), store, progress=False, device="cpu")
    assert evenspan.index(model_folder, rows(5), store, progress=False, device="cpu", **nowhere).unchanged == 5


def wait_for_a_shard(store: str, driver: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + PATIENCE
    while driver.poll() is None and time.monotonic() < deadline:
        try:
            with evenspan.open_index(store) as index:
                if len(index):
                    return
        except (OSError, ValueError):  # not there yet
            pass
        time.sleep(0.2)
    raise AssertionError((driver.stderr.read() if driver.poll() is not None else b"nothing was committed").decode())
