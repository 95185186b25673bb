"""What it costs to calibrate every row, as mean-pooled models need it.

    python benchmarks/every_row.py [--parts exact attention models cpu] [--output benchmarks/results/FILE.json]

exact      the fused kernel against float64: head and basket sizes, both partitions, padded and packed batches
attention  the attention of one layer, plain SDPA against the kernel under several tilings
models     24 layers of 1,024, twelve of them calibrated, float16: whole passes, plain and calibrated in turn
cpu        6 layers of 384 on a CPU, 8 texts of 1,024 tokens, float32: the same in PyTorch

Figures are printed as they come and the JSON is written after each. Times are medians, ratios are calibrated / plain.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from sentence_transformers import SentenceTransformer
from shapes import random_model
from tokenizers.processors import TemplateProcessing
from torch.nn.functional import scaled_dot_product_attention

import evenspan
from evenspan import Calibration
from evenspan.core.baskets import Baskets
from evenspan.core.calls import baskets_of
from evenspan.core.every_row import fused_every_row

BATCHES = [(8, 2048), (32, 512), (4, 8192)]
SETTINGS = [Calibration(), Calibration(strength=1.0), Calibration(partition="even")]
LARGE = {"hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 16, "intermediate_size": 4096}
SMALL = {"hidden_size": 384, "num_hidden_layers": 6, "num_attention_heads": 12, "intermediate_size": 1536}
# Rows and keys of a tile, keys of the tiles for the rest of a basket, warps, stages.
TILINGS = [(64, 128, 16, 4, 3), (64, 128, 16, 4, 2), (128, 128, 16, 8, 3)]
SPANNING = [(64, 128, 32, 4, 3), (64, 128, 32, 4, 2), (128, 128, 32, 8, 3), (64, 128, 64, 4, 3), (64, 64, 64, 4, 3)]


class Results:
    """Rows of figures, printed and written as they come."""

    def __init__(self, path: Path | None) -> None:
        self.path, self.rows = path, [{"what": "versions", **_versions()}]

    def add(self, **row: Any) -> None:
        """Take in a row."""
        self.rows.append(row)
        print(json.dumps(row), flush=True)
        if self.path is not None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self.path.write_text("[\n" + ",\n".join(map(json.dumps, self.rows)) + "\n]\n", encoding="utf-8")


def _versions() -> dict[str, str]:
    import transformers

    device = torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu"
    return {"device": device, "torch": torch.__version__, "transformers": transformers.__version__}


def reference(states: list[torch.Tensor], mask: torch.Tensor, setting: Calibration) -> torch.Tensor:
    """Every row in float64, from whole matrices, sequence by sequence, the first and the last token isolated."""
    query, key, value = (state.double() for state in states)
    repeat = query.shape[1] // key.shape[1]
    key, value = key.repeat_interleave(repeat, 1), value.repeat_interleave(repeat, 1)
    output = torch.zeros_like(query)
    size = setting.basket_size
    for row, valid in enumerate(mask.bool()):
        here = valid.nonzero().flatten()
        plain = torch.softmax(query[row][:, here] @ key[row][:, here].mT * query.shape[-1] ** -0.5, dim=-1)
        content = torch.arange(len(here) - 2, device=mask.device)
        baskets = max(1, -(-len(content) // size))
        number = content // size
        if setting.partition == "even":
            baskets = max(1, (2 * len(content) + size) // (2 * size))
            number = content * baskets // max(len(content), 1)
        equalised = plain.clone()
        if len(content) >= size and (setting.partition == "paper" or baskets > 1):
            inner = plain[..., 1:-1]
            sums = torch.zeros(*inner.shape[:-1], baskets, dtype=inner.dtype, device=inner.device)
            sums = sums.index_add(-1, number, inner)
            equalised[..., 1:-1] = inner / sums[..., number] * inner.sum(-1, keepdim=True) / baskets
        weights = torch.lerp(plain, equalised, setting.strength)
        output[row][:, here] = weights @ value[row][:, here]
    return output.transpose(1, 2)


def exact(results: Results) -> None:
    """The kernel's largest deviation from float64, beside that of plain SDPA."""
    for size in (32, 64, 96, 128, 256):
        for basket_size, dtype in (
            (32, torch.float16),
            (64, torch.bfloat16),
            (128, torch.float16),
            (256, torch.float16),
        ):
            for partition in ("paper", "even"):
                torch.manual_seed(size)
                setting = Calibration(strength=0.5, basket_size=basket_size, partition=partition)
                mask = torch.arange(700) < torch.tensor([700, 333, 100, 5]).unsqueeze(1)
                states = [torch.randn(4, 700, heads, size, dtype=dtype).transpose(1, 2) for heads in (4, 2, 2)]
                states, mask = [state.cuda() for state in states], mask.long().cuda()
                expected, offs = reference(states, mask, setting), {}
                for layout, side in (("right", 0), ("left", 1)):
                    flipped = [state.flip(2) if side else state for state in states]
                    shown = mask.flip(1) if side else mask
                    baskets = baskets_of({"input_ids": shown, "attention_mask": shown}, "last", setting)
                    output = fused_every_row(*flipped, baskets, setting, size**-0.5, None)
                    want = reference(flipped, shown, setting) if side else expected
                    offs[layout] = float((output - want)[shown.bool()].abs().max())
                offs["packed"] = _packed_off(states, mask, setting, expected)
                results.add(
                    what="exact", head=size, basket=basket_size, dtype=str(dtype)[6:], partition=partition, **offs
                )


def _packed_off(states: list[torch.Tensor], mask: torch.Tensor, setting: Calibration, expected: torch.Tensor) -> float:
    real = mask.bool()
    packed = [state.transpose(1, 2)[real].unsqueeze(0).transpose(1, 2) for state in states]
    lengths = mask.sum(dim=1)
    cumulative = torch.cat([lengths.new_zeros(1), lengths.cumsum(0)]).int()
    even = setting.partition == "even"
    tokens = int(cumulative[-1])
    baskets = Baskets.from_lengths(cumulative, tokens, int(lengths.max()), "last", setting.basket_size, even=even)
    output = fused_every_row(*packed, baskets, setting, packed[0].shape[-1] ** -0.5, None)
    return float((output[0] - expected[real]).abs().max())


def milliseconds(call: Callable[[], object], repeats: int = 20) -> float:
    """The median time of a call on the device."""
    for _ in range(3):
        call()
    times = []
    for _ in range(repeats):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        call()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end))
    return statistics.median(times)


def attention(results: Results) -> dict[tuple[int, int, str], tuple[int, ...]]:
    """One layer's attention under every tiling; returns the best for each batch and partition."""
    from evenspan.core.triton.every_row import Tiling, launch

    best: dict[tuple[int, int, str], tuple[int, ...]] = {}
    for rows, tokens in BATCHES:
        query, key, value = (
            torch.randn(rows, tokens, 16, 64, device="cuda", dtype=torch.float16).transpose(1, 2) for _ in range(3)
        )
        mask = torch.ones(rows, tokens, dtype=torch.long, device="cuda")
        plain = milliseconds(partial(scaled_dot_product_attention, query, key, value))
        for setting in SETTINGS:
            baskets = baskets_of({"input_ids": mask, "attention_mask": mask}, "last", setting)
            even = setting.partition == "even"
            cut, layout = (setting.basket_size, even), (tokens, False, True)
            for tiling in SPANNING if even else TILINGS:
                arguments = (baskets.spans, cut, layout, setting.strength, 0.125, None, Tiling(*tiling))
                row = {"batch": [rows, tokens], "setting": str(setting), "tiling": tiling, "plain_ms": round(plain, 4)}
                try:
                    taken = milliseconds(partial(launch, query, key, value, *arguments))
                except Exception as error:
                    results.add(what="attention", **row, error=type(error).__name__)
                    continue
                results.add(what="attention", **row, ms=round(taken, 4), ratio=round(taken / plain, 3))
                known = best.get((rows, tokens, str(setting)), (1e9,))
                best[rows, tokens, str(setting)] = min(known, (taken, *tiling))
    for (rows, tokens, name), (taken, *tiling) in best.items():
        results.add(what="best tiling", batch=[rows, tokens], setting=name, tiling=tiling, ms=round(taken, 4))
    return best


def mean_pooled(sizes: dict[str, int], dtype: torch.dtype, device: str) -> SentenceTransformer:
    """A mean-pooled random model whose tokenizer ends texts with a special token."""
    model = random_model("XLMRobertaConfig", "mean", sizes, dtype, device)
    backend = model[0].processor.backend_tokenizer
    backend.post_processor = TemplateProcessing(single="$A [UNK]", special_tokens=[("[UNK]", 1)])
    return model


def models(results: Results) -> None:
    """Whole passes, plain and calibrated in turn."""
    model = mean_pooled(LARGE, torch.float16, "cuda")
    for rows, tokens in BATCHES:
        ids = torch.randint(2, 1000, (rows, tokens), device="cuda")
        inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
        for setting in SETTINGS:
            evenspan.calibrate(model, setting)

            @torch.inference_mode()
            def encode(task: str, inputs: dict[str, torch.Tensor] = inputs) -> None:
                model(dict(inputs), task=task)

            plain, calibrated = [], []
            for _ in range(3):
                plain.append(milliseconds(lambda: encode("query"), 5))
                calibrated.append(milliseconds(lambda: encode("document"), 5))
            before, after = statistics.median(plain), statistics.median(calibrated)
            row = {
                "batch": [rows, tokens],
                "setting": str(setting),
                "plain_ms": round(before, 2),
                "ms": round(after, 2),
            }
            results.add(what="model", **row, ratio=round(after / before, 3))


def cpu(results: Results) -> None:
    """A small model in PyTorch, on as many threads as torch has."""
    model = mean_pooled(SMALL, torch.float32, "cpu")
    ids = torch.randint(2, 1000, (8, 1024))
    inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    for setting in SETTINGS:
        evenspan.calibrate(model, setting)
        times: dict[str, list[float]] = {"query": [], "document": []}
        for turn in range(4):
            for task, taken in times.items():
                start = time.perf_counter()
                with torch.inference_mode():
                    model(dict(inputs), task=task)
                if turn:  # the first is verified
                    taken.append(time.perf_counter() - start)
        plain, calibrated = (min(taken) for taken in times.values())  # others may use the machine as well
        row = {"setting": str(setting), "plain_s": round(plain, 3), "s": round(calibrated, 3)}
        results.add(
            what="cpu", batch=[8, 1024], **row, ratio=round(calibrated / plain, 3), threads=torch.get_num_threads()
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parts: dict[str, Callable[[Results], Any]] = {"exact": exact, "attention": attention, "models": models, "cpu": cpu}
    usual = ["exact", "attention", "models"] if torch.cuda.is_available() else ["cpu"]
    parser.add_argument("--parts", nargs="*", choices=list(parts), default=usual)
    parser.add_argument("--output", type=Path, help="write the figures to this file")
    options = parser.parse_args()
    results = Results(options.output)
    print(json.dumps(results.rows[0]), flush=True)
    for name in options.parts:
        parts[name](results)


if __name__ == "__main__":
    main()
