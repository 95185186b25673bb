"""What calibration costs: time and peak memory of calibrated over plain encoding, measured in one process.

    python benchmarks/overhead.py [--repeats 15] [--threads 2] [--device cuda]

The model has random weights, which cost as much as trained ones. Plain and calibrated passes alternate, so that a busy
machine slows both alike; the ratio is the median of the ratios of neighbouring passes. Runs on the CPU and, if there is
one, on the CUDA device.
"""

from __future__ import annotations

import argparse
import platform
import resource
import statistics
import time
from collections.abc import Callable

import torch
import transformers
from sentence_transformers import SentenceTransformer
from shapes import random_model

import evenspan
from evenspan import Calibration

SETTINGS = [Calibration(), Calibration(layers="all"), Calibration(layers="last")]


def build(layers: int, width: int, heads: int, device: str) -> SentenceTransformer:
    """A first-token-pooled BERT of the given shape."""
    sizes = {
        "hidden_size": width,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "intermediate_size": 4 * width,
    }
    return random_model("BertConfig", "cls", sizes, torch.float16 if device == "cuda" else torch.float32, device)


def timer(device: str) -> Callable[[Callable[[], object]], float]:
    def seconds(call: Callable[[], object]) -> float:
        if device == "cuda":
            torch.cuda.synchronize()
        start = time.perf_counter()
        call()
        if device == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter() - start

    return seconds


def peak_mib(device: str, call: Callable[[], object]) -> float:
    """Peak memory: of the device, or the largest the process ever was on the CPU."""
    if device == "cuda":
        torch.cuda.reset_peak_memory_stats()
        call()
        return torch.cuda.max_memory_allocated() / 2**20
    call()
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def measure(shape: tuple[int, int, int], batch: int, tokens: int, ragged: bool, device: str, repeats: int) -> None:
    layers, width, heads = shape
    model = build(layers, width, heads, device)
    features = {
        "input_ids": torch.randint(2, 1000, (batch, tokens), device=device),
        "attention_mask": torch.ones(batch, tokens, dtype=torch.long, device=device),
    }
    if ragged:
        for row in range(1, batch):
            features["attention_mask"][row, tokens - row * tokens // (2 * batch) :] = 0
    seconds = timer(device)

    @torch.inference_mode()
    def encode(task: str) -> torch.Tensor:
        # As `encode` does: nothing but the vector is asked for.
        options = {"pooled_only": True} if task == "document" else {}
        return model(dict(features), task=task, **options)["sentence_embedding"]

    name = f"{batch} × {tokens:,} {'ragged' if ragged else 'full'}, {layers} layers × {width}"
    plain_peak = peak_mib(device, lambda: encode("query"))
    for setting in SETTINGS:
        evenspan.calibrate(model, setting)
        calibrated_peak = peak_mib(device, lambda: encode("document"))
        for _ in range(2):
            encode("query"), encode("document")
        pairs = [(seconds(lambda: encode("query")), seconds(lambda: encode("document"))) for _ in range(repeats)]
        ratio = statistics.median(calibrated / plain for plain, calibrated in pairs)
        plain = statistics.median(plain for plain, _ in pairs)
        cells = [
            name,
            setting.layers,
            f"{plain * 1e3:.1f} ms",
            f"{ratio:.3f}",
            f"{calibrated_peak - plain_peak:+.1f} MiB",
        ]
        print(f"| {' | '.join(map(str, cells))} |", flush=True)
        evenspan.restore(model)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--threads", type=int, default=2, help="CPU threads (default: 2)")
    parser.add_argument("--device", choices=["cpu", "cuda"], help="measure this one only (default: all there are)")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    devices = [options.device] if options.device else ["cpu"] + ["cuda"] * torch.cuda.is_available()
    for device in devices:
        chip = torch.cuda.get_device_name() if device == "cuda" else f"{platform.machine()}, {options.threads} threads"
        dtype = "float16" if device == "cuda" else "float32"
        versions = f"torch {torch.__version__}, transformers {transformers.__version__}"
        print(f"\n{device} ({chip}), {dtype}, {versions}, soft, λ = 0.5, B = 128, SDPA\n")
        print("| batch | calibrated layers | plain | calibrated / plain | peak memory over plain |")
        print("|---|---|---|---|---|")
        shape = (6, 384, 12) if device == "cpu" else (24, 1024, 16)
        batch, tokens = (8, 1024) if device == "cpu" else (8, 2048)
        for ragged in (False, True):
            measure(shape, batch, tokens, ragged, device, options.repeats)


if __name__ == "__main__":
    main()
