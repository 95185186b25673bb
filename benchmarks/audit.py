"""What an audit costs: 1,000 documents of 1,000 tokens, in plain encoding passes over the same documents.

    python benchmarks/audit.py [--documents 1000] [--tokens 1000] [--output FILE.md]

Random weights, which cost as much as trained ones. Memory is how much the process grows by, in a process of its own.
"""

from __future__ import annotations

import argparse
import multiprocessing
import platform
import random
import statistics
import time
from pathlib import Path
from typing import Any

import torch
import transformers
from shapes import random_model

import evenspan
from evenspan import Calibration

SHAPE = {"hidden_size": 128, "num_hidden_layers": 4, "num_attention_heads": 4, "intermediate_size": 512}
WAYS: dict[str, dict[str, Any]] = {"audit": {}, "audit with a calibration": {"calibration": Calibration()}}


def texts(documents: int, tokens: int) -> list[str]:
    draw = random.Random(0)
    return [" ".join(draw.choice(["word", "other"]) for _ in range(tokens)) for _ in range(documents)]


def build() -> Any:
    torch.set_num_threads(2)
    return random_model("BertConfig", "cls", SHAPE, torch.float32, "cpu")


def run(way: str, documents: int, tokens: int) -> tuple[float, float]:
    """Seconds, and MiB that the process grew by."""
    model, corpus = build(), texts(documents, tokens)
    model.encode_document(["word"])
    Path("/proc/self/clear_refs").write_text("5")  # forget the peak so far, which building the model made
    before = _memory("VmRSS")
    start = time.perf_counter()
    if way == "plain":
        model.encode_document(corpus, batch_size=32)
    else:
        evenspan.audit(model, corpus, sample=None, progress=False, **WAYS[way])
    return time.perf_counter() - start, _memory("VmHWM") - before


def apart(*arguments: Any) -> tuple[float, float]:
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(run, arguments)


def _memory(name: str) -> float:
    return int(Path("/proc/self/status").read_text().partition(f"{name}:")[2].split()[0]) / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--documents", type=int, default=1000)
    parser.add_argument("--tokens", type=int, default=1000)
    parser.add_argument("--output", type=Path, help="write the table to this file too")
    options = parser.parse_args()
    lines = [
        f"# What an audit costs: {platform.machine()}, 2 threads, float32",
        "",
        f"torch {torch.__version__}, transformers {transformers.__version__}; "
        f"`python benchmarks/audit.py --documents {options.documents} --tokens {options.tokens}`, 4 layers × 128.",
        "",
        "| | documents | time | plain passes | memory |",
        "|---|---|---|---|---|",
    ]
    print("\n".join(lines), flush=True)
    size = f"{options.documents:,} × {options.tokens:,}"
    plain = [apart("plain", options.documents, options.tokens)]
    audits = {}
    for way in WAYS:
        audits[way] = apart(way, options.documents, options.tokens)
        plain.append(apart("plain", options.documents, options.tokens))  # in turns: a busy machine slows all alike
    one = statistics.median(seconds for seconds, _ in plain)
    rows = [("plain encoding", (one, statistics.median(grown for _, grown in plain))), *audits.items()]
    for name, (seconds, grown) in rows:
        lines.append(f"| {name} | {size} | {seconds:.0f} s | {seconds / one:.2f} | +{grown:.0f} MiB |")
        print(lines[-1], flush=True)
    if options.output:
        options.output.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
