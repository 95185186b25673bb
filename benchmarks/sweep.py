"""What many settings cost together: the paper's grid and ablation, against encoding each by itself.

    python benchmarks/sweep.py [--device cuda] [--repeats 3] [--output FILE.md]

In units of one plain pass over the same texts, measured in the same run, in turns. Random weights, which cost as much as
trained ones. On the CPU 12 layers × 256; on a CUDA device, in float16, the shapes of bge-m3 and Qwen3-Embedding-0.6B.
"""

from __future__ import annotations

import argparse
import multiprocessing
import platform
import statistics
from pathlib import Path

import torch
import transformers
from overhead import peak_mib, timer
from sentence_transformers import SentenceTransformer
from shapes import random_model

import evenspan
from evenspan import sweeps

SMALL = {"hidden_size": 256, "num_hidden_layers": 12, "num_attention_heads": 4, "intermediate_size": 1024}
LARGE = {"hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 16, "intermediate_size": 4096}
QWEN3 = {**LARGE, "num_hidden_layers": 28, "num_key_value_heads": 8, "head_dim": 128, "intermediate_size": 3072}
MODELS = {
    "cpu": {
        "first token, 12 × 256": ("XLMRobertaConfig", "cls", SMALL),
        "last token, 12 × 256": ("Qwen3Config", "lasttoken", {**SMALL, "num_key_value_heads": 2, "head_dim": 64}),
    },
    "cuda": {
        "bge-m3": ("XLMRobertaConfig", "cls", LARGE),
        "Qwen3-Embedding-0.6B": ("Qwen3Config", "lasttoken", QWEN3),
    },
}
GRIDS = {"grid, 24": sweeps.paper_grid(), "ablation, 40": sweeps.ablation_grid()}


def measure(name: str, model: SentenceTransformer, device: str, tokens: int, texts: int, repeats: int) -> list[str]:
    documents = [" ".join(["word"] * (tokens - 2)) for _ in range(texts)]
    options = {"batch_size": texts, "show_progress_bar": False}
    seconds = timer(device)

    def plain() -> object:
        return model.encode_document(documents, **options)

    rows = []
    for label, grid in GRIDS.items():

        def separately(grid: list[evenspan.Calibration] = grid) -> float:
            """Encoding alone, without what it takes to calibrate a model, which is little for more texts than these."""
            taken = 0.0
            for one in grid:
                with evenspan.calibrated(model, one):
                    plain()  # the first pass verifies that calibration works
                    taken += seconds(plain)
            return taken

        def together(*, detached: bool, grid: list[evenspan.Calibration] = grid) -> object:
            return sweeps.encode(model, documents, grid, detached=detached, **options)

        plain(), together(detached=False)
        times: dict[str, list[float]] = {"plain": [], "exact": [], "detached": []}
        for _ in range(repeats):
            times["plain"].append(seconds(plain))
            times["exact"].append(seconds(lambda: together(detached=False)))
            times["detached"].append(seconds(lambda: together(detached=True)))
        one = statistics.median(times["plain"])
        if device == "cuda":
            memory = peak_mib(device, lambda: together(detached=False)) / peak_mib(device, plain)
        else:
            memory = _grown(name, grid, texts, tokens) / _grown(name, [], texts, tokens)
        cells = [
            name,
            label,
            f"{texts} × {tokens:,}",
            f"{one * 1e3:.0f} ms",
            f"{separately() / one:.1f}",
            f"**{statistics.median(times['exact']) / one:.1f}**",
            f"{statistics.median(times['detached']) / one:.1f}",
            f"× {memory:.2f}",
        ]
        rows.append(f"| {' | '.join(cells)} |")
        print(rows[-1], flush=True)
    return rows


def _grown(name: str, grid: list[evenspan.Calibration], texts: int, tokens: int) -> float:
    """How much a process grows by encoding on the CPU, plain or with a grid, in MiB: in a process of its own."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(_grow, (name, grid, texts, tokens))


def _grow(name: str, grid: list[evenspan.Calibration], texts: int, tokens: int) -> float:
    model = build(*MODELS["cpu"][name], "cpu")
    documents = [" ".join(["word"] * (tokens - 2)) for _ in range(texts)]
    model.encode_document(["word"])
    Path("/proc/self/clear_refs").write_text("5")  # forget the peak so far, which building the model made
    before = _memory("VmRSS")
    if grid:
        sweeps.encode(model, documents, grid, batch_size=texts)
    else:
        model.encode_document(documents, batch_size=texts)
    return _memory("VmHWM") - before


def _memory(name: str) -> float:
    status = Path("/proc/self/status").read_text()
    return int(status.partition(f"{name}:")[2].split()[0]) / 1024


def build(config_class: str, pooling: str, sizes: dict[str, int], device: str) -> SentenceTransformer:
    dtype = torch.float16 if device == "cuda" else torch.float32
    return random_model(config_class, pooling, sizes, dtype, device)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2, help="CPU threads (default: 2)")
    parser.add_argument("--output", type=Path, help="write the table to this file too")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    chip = (
        torch.cuda.get_device_name() if options.device == "cuda" else f"{platform.machine()}, {options.threads} threads"
    )
    lines = [
        f"# Sweeps: {options.device} ({chip})",
        "",
        f"torch {torch.__version__}, transformers {transformers.__version__}; "
        f"`python benchmarks/sweep.py --device {options.device} --repeats {options.repeats}`. "
        "Everything in plain passes; memory is that of a plain pass: on the CPU what a process grows by.",
        "",
        "| model | settings | texts | one plain pass | one by one | together, exact | together, detached | memory |",
        "|---|---|---|---|---|---|---|---|",
    ]
    print("\n".join(lines), flush=True)
    tokens, texts = (2048, 8) if options.device == "cuda" else (768, 4)
    for name, (config_class, pooling, sizes) in MODELS[options.device].items():
        model = build(config_class, pooling, sizes, options.device)
        lines += measure(name, model, options.device, tokens, texts, options.repeats)
    if options.output:
        options.output.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
