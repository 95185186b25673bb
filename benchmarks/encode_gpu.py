"""Plain, calibrated and eager encoding on a GPU, for the shapes of three real models with random weights.

    python benchmarks/encode_gpu.py [--repeats 15] [--output benchmarks/results/FILE.md]

Each way encodes the same token ids in turn, again and again; times are medians. Ways:

plain       the model's own fused attention (SDPA)
plain, row  the same, with the last layer run for the pooled row only: what plain encoding could save as well
full        calibrated, with all of the last layer
calibrated  calibrated, with the last layer run for the pooled row only: what `encode_document` does
eager       attention matrices in the open and the pooled row edited in them, as in the paper

Vectors are compared, and so are, on the same queries, keys and values, the pooled rows of every calibrated layer's
attention: vectors of deep random models hardly depend on their input and would hide errors.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import transformers
from sentence_transformers import SentenceTransformer
from shapes import random_model
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS

import evenspan
from evenspan import Calibration
from evenspan.core.baskets import Baskets
from evenspan.core.layers import AttentionLayers
from evenspan.core.redistribute import redistribute
from evenspan.core.rows import pooled_query, pooled_scores, replace_rows
from evenspan.models.modules import calibrated_module

SETTING = Calibration()
SHAPES: dict[str, tuple[str, str, dict[str, Any]]] = {
    "bge-m3": (
        "XLMRobertaConfig",
        "cls",
        {
            "hidden_size": 1024,
            "num_hidden_layers": 24,
            "num_attention_heads": 16,
            "intermediate_size": 4096,
            "initializer_range": 0.015,
        },
    ),
    "gte-multilingual-base": (
        "GteConfig",
        "cls",
        {
            "hidden_size": 768,
            "num_hidden_layers": 12,
            "num_attention_heads": 12,
            "intermediate_size": 3072,
            "initializer_range": 0.06,
        },
    ),
    "Qwen3-Embedding-0.6B": (
        "Qwen3Config",
        "lasttoken",
        {
            "hidden_size": 1024,
            "num_hidden_layers": 28,
            "num_attention_heads": 16,
            "num_key_value_heads": 8,
            "head_dim": 128,
            "intermediate_size": 3072,
            "initializer_range": 0.06,
        },
    ),
}
BATCHES = [(8, 2048, False), (8, 2048, True), (32, 512, False), (64, 512, True), (4, 8192, False)]
# Random queries look nowhere in particular, and calibration would have nothing to change.
SHARPNESS = {"bge-m3": 12.0, "gte-multilingual-base": 4.0, "Qwen3-Embedding-0.6B": 4.0}
LONGEST_EAGER = 2048  # matrices of 8,192 × 8,192 would not fit beside the rest


def build(name: str) -> SentenceTransformer:
    config_class, pooling, sizes = SHAPES[name]
    model = random_model(config_class, pooling, sizes, torch.float16, "cuda")
    for path, parameter in model.named_parameters():
        if path.endswith(("query.weight", "q_norm.weight")) or (path.endswith("q_proj.weight") and pooling == "cls"):
            parameter.data *= SHARPNESS[name]
    return model


def features(batch: int, tokens: int, ragged: bool) -> dict[str, torch.Tensor]:
    """Token ids and a mask; ragged batches go down to half the length, row by row."""
    generator = torch.Generator().manual_seed(1)
    ids = torch.randint(2, 1000, (batch, tokens), generator=generator)
    mask = torch.ones_like(ids)
    if ragged:
        for row in range(batch):
            mask[row, tokens - row * tokens // (2 * batch) :] = 0
    return {"input_ids": ids.cuda(), "attention_mask": mask.cuda()}


def eager_row_edit(
    baskets: Baskets,
    chosen: set[int],
    modules: list[torch.nn.Module],
    deviations: list[tuple[float, float]] | None = None,
) -> Callable[..., Any]:
    """Attention in the open, as in the paper; notes, if asked, how far the fused rows are from the edited ones."""
    order = {id(module): index for index, module in enumerate(modules)}

    def attention(module: Any, query: Any, key: Any, value: Any, mask: Any, scaling: float, **_: Any) -> Any:
        repeat = query.shape[1] // key.shape[1]
        keys, values = key.repeat_interleave(repeat, dim=1), value.repeat_interleave(repeat, dim=1)
        scores = query @ keys.transpose(2, 3) * scaling
        if mask is not None:
            scores = scores + mask
        weights = torch.softmax(scores, dim=-1, dtype=torch.float32).to(query.dtype)
        if order[id(module)] in chosen:
            row = redistribute(
                pooled_scores(pooled_query(query, baskets), key, baskets, scaling, None), baskets, SETTING
            )
            batch, heads, columns, _ = query.shape
            rows = row.view(heads, batch, columns).transpose(0, 1).to(weights.dtype)
            weights[torch.arange(batch, device=row.device), :, baskets.pooled % columns] = rows
        output = (weights @ values).transpose(1, 2).contiguous()
        if deviations is not None and order[id(module)] in chosen:
            plain = torch.softmax(scores, dim=-1, dtype=torch.float32).to(query.dtype) @ values
            plain = plain.transpose(1, 2).contiguous()
            fused = replace_rows(plain.clone(), query, key, value, baskets, SETTING, scaling)
            edited, fused, untouched = (
                tensor.flatten(0, 1)[baskets.pooled].float().flatten(1) for tensor in (output, fused, plain)
            )
            deviations.append((_off(fused, edited), _off(untouched, edited)))
        return output, None

    return attention


class Ways:
    """One model and batch, and the five ways to encode it."""

    def __init__(self, model: SentenceTransformer, inputs: dict[str, torch.Tensor]) -> None:
        self.model, self.inputs = model, inputs
        evenspan.calibrate(model, SETTING)
        module = calibrated_module(model)
        assert module is not None
        self.inner: Any = module.model
        assert module.setting is not None
        calls = module.setting.calls
        self.modules = list(AttentionLayers.of(self.inner, calls.pooling).modules)
        self.chosen = set(calls.layers)
        self.baskets = Baskets.from_mask(inputs["attention_mask"], calls.pooling, SETTING.basket_size)
        self.deviations: list[tuple[float, float]] = []
        self.eager = inputs["input_ids"].shape[1] <= LONGEST_EAGER

    @torch.inference_mode()
    def encode(self, **options: Any) -> torch.Tensor:
        """One pass over the batch."""
        vector: torch.Tensor = self.model(dict(self.inputs), **options)["sentence_embedding"]
        return vector

    @contextmanager
    def way(self, name: str) -> Iterator[Callable[[], torch.Tensor]]:
        """Set the model up for a way, outside of what is timed."""
        if name == "plain":
            yield lambda: self.encode(task="query")
        elif name == "plain, row":
            with evenspan.calibrated(self.model, Calibration(strength=1e-6, layers="last")):
                yield lambda: self.encode(task="document", pooled_only=True)
        elif name in ("eager", "check"):
            evenspan.restore(self.model)
            deviations = self.deviations if name == "check" else None
            function = eager_row_edit(self.baskets, self.chosen, self.modules, deviations)
            AttentionInterface.register("benchmark_eager", function)
            AttentionMaskInterface.register("benchmark_eager", ALL_MASK_ATTENTION_FUNCTIONS["eager"])
            self.inner.set_attn_implementation("benchmark_eager")
            yield self.encode
            self.inner.set_attn_implementation("sdpa")
            evenspan.calibrate(self.model, SETTING)
        else:
            yield lambda: self.encode(task="document", pooled_only=name == "calibrated")


def seconds(call: Callable[[], object]) -> float:
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    call()
    end.record()
    end.synchronize()
    return start.elapsed_time(end) / 1e3


def measure(name: str, model: SentenceTransformer, shape: tuple[int, int, bool], repeats: int) -> str:
    batch, tokens, ragged = shape
    inputs = features(batch, tokens, ragged)
    ways = Ways(model, inputs)
    names = ["plain", "plain, row", "full", "calibrated"] + ["eager"] * ways.eager
    times: dict[str, list[float]] = {way: [] for way in names}
    peaks: dict[str, float] = {}
    vectors: dict[str, torch.Tensor] = {}
    for way in names:  # warm up, compile, and see what comes out
        with ways.way(way) as encode:
            encode()
            vectors[way] = encode().float()
            torch.cuda.synchronize()
            torch.cuda.reset_peak_memory_stats()
            encode()
            peaks[way] = torch.cuda.max_memory_allocated() / 2**20
    if ways.eager:
        with ways.way("check") as encode:
            encode()
    for repeat in range(repeats):
        for way in names[:: 1 if repeat % 2 else -1]:  # there and back, so that no way always follows the same other
            if way == "eager" and repeat % 3:
                continue
            with ways.way(way) as encode:
                encode()  # so that no way pays for being set up
                torch.cuda.synchronize()
                times[way] += [seconds(encode) for _ in range(3)]
    middle = {way: statistics.median(times[way]) for way in names}
    plain = middle["plain"]
    label = f"{batch} × {tokens:,}{' ragged' if ragged else ''}"
    cells = [
        name,
        label,
        f"{plain * 1e3:.1f} ms",
        f"{middle['plain, row'] / plain:.3f}",
        f"{middle['full'] / plain:.3f}",
        f"**{middle['calibrated'] / plain:.3f}**",
        f"{middle['eager'] / plain:.2f}" if ways.eager else "—",
        f"{middle['eager'] / middle['calibrated']:.1f}×" if ways.eager else "—",
        f"{peaks['calibrated'] - peaks['plain']:+.1f} MiB",
        f"{_off(vectors['calibrated'], vectors['full']):.0e}",
        f"{_off(vectors['calibrated'], vectors['eager']):.0e}" if ways.eager else "—",
        f"{_off(vectors['calibrated'], vectors['plain']):.0e}",
        f"{max(off for off, _ in ways.deviations):.0e}" if ways.eager else "—",
        f"{min(off for _, off in ways.deviations):.0e}" if ways.eager else "—",
    ]
    return f"| {' | '.join(cells)} |"


def _off(one: torch.Tensor, other: torch.Tensor) -> float:
    """The largest relative distance of two sets of rows."""
    return float(((one - other).norm(dim=-1) / other.norm(dim=-1)).max())


HEADER = (
    "| shape | batch | plain SDPA | plain, row | calibrated, full last layer | calibrated | eager | eager / calibrated "
    "| peak memory | vectors off full | off eager | off plain | attention rows off eager | off plain |\n|" + "---|" * 14
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=9, help="turns of three passes each (default: 9)")
    parser.add_argument("--output", type=Path, help="write the table to this file too")
    parser.add_argument("--shapes", nargs="*", choices=list(SHAPES), default=list(SHAPES))
    options = parser.parse_args()
    if not torch.cuda.is_available():
        sys.exit("This benchmark needs a CUDA device; for the CPU see benchmarks/overhead.py.")
    import sentence_transformers
    import triton

    command = f"python benchmarks/encode_gpu.py --repeats {options.repeats}"
    lines = [
        f"# Encoding on a GPU: {torch.cuda.get_device_name()}",
        "",
        f"float16, {SETTING}, median of {options.repeats} interleaved turns of three passes; all columns but the first two are "
        "relative to plain SDPA unless a unit is given. “Off” is the largest relative distance of pooled rows.",
        f"torch {torch.__version__}, triton {triton.__version__}, transformers {transformers.__version__}, "
        f"sentence-transformers {sentence_transformers.__version__}; `{command}`",
        "",
        HEADER,
    ]
    print("\n".join(lines), flush=True)
    for name in options.shapes:
        if not hasattr(transformers, SHAPES[name][0]):
            lines.append(f"{name}: transformers {transformers.__version__} has no {SHAPES[name][0]}")
            print(lines[-1], flush=True)
            continue
        model = build(name)
        for shape in BATCHES:
            lines.append(measure(name, model, shape, options.repeats))
            print(lines[-1], flush=True)
            if options.output:
                options.output.parent.mkdir(parents=True, exist_ok=True)
                options.output.write_text("\n".join(lines) + "\n", encoding="utf-8")
        del model
        torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
