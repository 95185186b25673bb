"""Indexing by one process, by Ray, and by Ray with a worker killed in mid-run: is the index the same, how long does it take?

    python benchmarks/index_ray.py [--documents 20000] [--layers 12] [--width 768] [--output FILE]

Runs where it is started, on the GPUs that Ray finds there, or on CPUs. The model is random; documents have 30 to 400 words.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

os.environ.setdefault("RAY_AUTH_MODE", "disabled")

import psutil
import torch
from index import write_corpus
from index_faults import committed, content
from shapes import random_model


def workers() -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter():
        try:
            if "MapWorker(MapBatches(ShardEncoder)" in " ".join(process.cmdline()):
                found.append(process)
        except psutil.Error:
            continue
    return found


def on_gpu() -> set[str]:
    """The processes that a GPU works for."""
    if not torch.cuda.is_available():
        return set()
    command = ["nvidia-smi", "--query-compute-apps=pid", "--format=csv,noheader"]
    found = set()
    for pid in subprocess.run(command, capture_output=True, text=True, check=True).stdout.split():
        try:
            found.add(" ".join(psutil.Process(int(pid)).cmdline()).partition(".")[0])
        except psutil.Error:
            continue
    return found


def run(command: list[str], store: str, *, kill: bool) -> tuple[float, int | None, bool, str]:
    """Seconds, documents committed when the workers were killed, whether a Ray worker was on a GPU, the last words."""
    began, at, seen = time.perf_counter(), None, set()
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        while process.poll() is None:
            seen |= on_gpu()
            if kill and at is None and committed(store) and (found := workers()):
                at = committed(store)
                for one in found:
                    one.kill()
            time.sleep(0.2)
        words = process.stdout.read()
    if process.returncode:
        raise RuntimeError(words)
    return time.perf_counter() - began, at, any("ray::" in name for name in seen), words


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--documents", type=int, default=20_000)
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--width", type=int, default=768)
    parser.add_argument("--output", type=Path, help="a file for the table")
    options = parser.parse_args()
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else f"{os.cpu_count()} CPU cores"
    sizes = {
        "hidden_size": options.width,
        "num_hidden_layers": options.layers,
        "num_attention_heads": max(1, options.width // 64),
        "intermediate_size": 4 * options.width,
    }
    with tempfile.TemporaryDirectory(prefix="indexed", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        random_model("BertConfig", "cls", sizes, torch.float32, "cpu").save_pretrained(str(folder / "model"))
        write_corpus(folder / "corpus.jsonl", options.documents, 30, 400)
        base = [sys.executable, "-m", "evenspan.cli", "index", str(folder / "model"), str(folder / "corpus.jsonl")]
        shard = str(max(1, options.documents // 40))
        lines = [
            f"{options.documents:,} documents of 30 to 400 words in 40 shards, a random model of {options.layers} layers × "
            f"{options.width}, calibrated, float32, {device}. Times: the whole command, from starting Python on.",
            "",
            "| run | time | worker on a GPU | index |",
            "|---|---|---|---|",
        ]
        expected = None
        for title, more, kill in (
            ("one process, to warm up", [], False),
            ("one process", [], False),
            ("Ray", ["--engine", "ray"], False),
            ("Ray, its workers killed", ["--engine", "ray"], True),
        ):
            store = f"parquet:{folder / title.replace(' ', '-')}"
            command = [*base, store, "--shard-documents", shard, "--quiet", *more]
            seconds, at, gpu, words = run(command, store, kill=kill)
            print(title, words, flush=True)
            found = content(store)
            expected = expected or found
            same = "equal, bit by bit" if found == expected else "DIFFERENT"
            title += "" if at is None else f" with {at:,} documents committed"
            lines.append(f"| {title} | {seconds:.0f} s | {'yes' if gpu else '–'} | {len(found):,} rows, {same} |")
            print(lines[-1], flush=True)
    text = "\n".join(lines) + "\n"
    print(text)
    if options.output is not None:
        options.output.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
