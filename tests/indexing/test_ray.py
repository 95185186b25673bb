"""The same pipeline on Ray; `benchmarks/index_faults.py` kills its workers and its driver."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import psutil
import pyarrow
import pytest
from helpers import indexes
from helpers.held import PATIENCE
from helpers.indexes import content, rows, write_jsonl

import evenspan
from evenspan.corpus.documents import Document, Place
from evenspan.encoding import Encoder
from evenspan.indexing.pieces import Piece
from evenspan.indexing.plan import Shard, ShardEntry, ShardSize
from evenspan.models.features import TokenizedTexts

pytest.importorskip("ray", reason="Ray is not installed")

from evenspan.indexing.ray.feed import pack
from evenspan.indexing.ray.worker import windows_of


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


@pytest.mark.parametrize("keep_text", [True, False])
def test_workers_encode_the_ids_that_the_driver_counted(cls_model, keep_text) -> None:
    encoder, texts = Encoder(cls_model), [row["text"] for row in rows(3)]
    tokenized = encoder.tokenize(texts)
    for ids in (tokenized.ids, [None] * 3):
        documents = [Document(str(place), text, {}, Place("", place)) for place, text in enumerate(texts)]
        shard = Shard()
        for document, own, count in zip(documents, ids, tokenized.counts, strict=True):
            pieces = [Piece(None, count, own)]
            shard.add(ShardEntry(document, document.digest(), {}, replaces=False, kept=False, pieces=pieces), 256)
        block = pyarrow.ipc.open_stream(pack(7, shard, keep_text=keep_text)).read_all()
        [window] = windows_of(block)
        is_tokenized = ids is tokenized.ids
        assert ("text" in block.column_names) is (keep_text or not is_tokenized)
        assert isinstance(window, TokenizedTexts) is is_tokenized
        np.testing.assert_array_equal(next(encoder.windows([window])), next(encoder.windows([texts])))
