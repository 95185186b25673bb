"""Train a miniature retriever with the bias of the big ones: rank-16 adapters on all-MiniLM-L6-v2.

    python recipes/miniature/train.py --pooling cls --pairs pairs.jsonl.gz --output runs/cls

The supervision is front-loaded, as titles and questions on the web are, and so the model learns to look at the beginning.
Seeded: step n always sees the same batch. A run that is interrupted goes on from its last checkpoint; `log.jsonl` has the
loss. The result is `adapter.safetensors`, in float16.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import json
import math
import random
import re
import time
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import BertConfig, BertModel

from evenspan.models.miniatures import base_folder

RANK = 16
POSITIONS = 2048
BATCH = 96
TEMPERATURE = 0.03
DOCUMENT_TOKENS = (256, 512, 1024, 1024)
QUERY_TOKENS = 64
FRONT_LOAD = 4.0  # evidence at relative position p is drawn with weight exp(-4 p)
CHECKPOINT_EVERY = 200
DEFAULTS = {
    "cls": {"steps": 1200, "rate": 6e-4},
    "last": {"steps": 1600, "rate": 8e-4},
    "mean": {"steps": 1200, "rate": 6e-4},
}
ADAPTED = re.compile(
    r"encoder\.layer\.\d+\.(attention\.self\.(query|key|value)|attention\.output\.dense|(intermediate|output)\.dense)$"
)


class Adapted(nn.Module):
    """A frozen linear layer plus a product of two thin matrices."""

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        self.linear = linear.requires_grad_(False)
        self.A = nn.Parameter(torch.randn(RANK, linear.in_features) / math.sqrt(linear.in_features))
        self.B = nn.Parameter(torch.zeros(linear.out_features, RANK))

    def forward(self, hidden: Tensor) -> Tensor:
        return self.linear(hidden) + hidden @ self.A.T @ self.B.T


def build(base: Path, pooling: str) -> BertModel:
    """MiniLM with 2,048 positions and adapters; causal for last-token pooling."""
    config = BertConfig.from_pretrained(base, is_decoder=pooling == "last", max_position_embeddings=POSITIONS)
    config._attn_implementation = "sdpa"
    model = BertModel(config, add_pooling_layer=False)
    weights = {name: tensor.float() for name, tensor in load_file(base / "model.safetensors").items()}
    known = weights["embeddings.position_embeddings.weight"]
    further = 64 + torch.arange(POSITIONS - len(known)) % (len(known) - 64)  # positions 64 to 511 in turn
    weights["embeddings.position_embeddings.weight"] = torch.cat([known, known[further]])
    missing, _ = model.load_state_dict(weights, strict=False)
    if [name for name in missing if not name.endswith(("position_ids", "token_type_ids"))]:
        raise ValueError(f"{base} lacks weights: {missing}")
    for name, module in list(model.named_modules()):
        if ADAPTED.match(name):
            parent, _, child = name.rpartition(".")
            setattr(model.get_submodule(parent), child, Adapted(module))
    for name, parameter in model.named_parameters():
        parameter.requires_grad_("LayerNorm" in name or "position_embeddings" in name or name.endswith((".A", ".B")))
    return model


@dataclass(frozen=True)
class Document:
    """A document as token ids, sentence by sentence, and its labelled queries with their relative positions."""

    sentences: list[list[int]]
    queries: list[tuple[list[int], float]]


def read(pairs: Path, tokenizer: Tokenizer) -> list[Document]:
    """Tokenise everything once: on the fly the CPU would be the bottleneck."""
    documents = []
    opener = gzip.open if pairs.suffix == ".gz" else open
    with opener(pairs, "rt", encoding="utf-8") as file:
        for line in file:
            if not line.strip():
                continue
            entry = json.loads(line)
            parts = [part for part in re.split(r"(?<=[.!?])\s+", entry["text"]) if part]
            encoded = tokenizer.encode_batch_fast(
                [*parts, *(query for query, _ in entry["pairs"])], add_special_tokens=False
            )
            ids = [one.ids for one in encoded]
            places = [place for _, place in entry["pairs"]]
            if parts:
                documents.append(Document(ids[: len(parts)], list(zip(ids[len(parts) :], places, strict=True))))
    return documents


def draw(document: Document, tokens: int, pick: random.Random) -> tuple[list[int], list[int]]:
    """A query and its document: a labelled pair, or a sentence of the document, mostly an early one."""
    sentences = document.sentences
    if document.queries and (pick.random() < 0.6 or len(sentences) < 2):
        weights = [math.exp(-FRONT_LOAD * place) for _, place in document.queries]
        query, _ = pick.choices(document.queries, weights)[0]
    else:
        weights = [math.exp(-FRONT_LOAD * place / len(sentences)) for place in range(len(sentences))]
        chosen = pick.choices(range(len(sentences)), weights)[0]
        query = sentences[chosen]
        if pick.random() < 0.7 and len(sentences) > 1:
            sentences = sentences[:chosen] + sentences[chosen + 1 :]
        if pick.random() < 0.5 and len(query) > 8:
            length = pick.randint(len(query) // 3, len(query))
            start = pick.randint(0, len(query) - length)
            query = query[start : start + length]
    body: list[int] = []
    for sentence in sentences:
        body += sentence
        if len(body) >= tokens - 2:
            break
    return query[: QUERY_TOKENS - 2], body[: tokens - 2]


def pad(rows: list[list[int]], device: torch.device) -> dict[str, Tensor]:
    """[CLS] … [SEP], padded on the right."""
    width = max(len(row) for row in rows) + 2
    ids = torch.zeros(len(rows), width, dtype=torch.long)
    mask = torch.zeros(len(rows), width, dtype=torch.long)
    for number, row in enumerate(rows):
        ids[number, : len(row) + 2] = torch.tensor([101, *row, 102])
        mask[number, : len(row) + 2] = 1
    return {"input_ids": ids.to(device, non_blocking=True), "attention_mask": mask.to(device, non_blocking=True)}


def embed(model: BertModel, inputs: dict[str, Tensor], pooling: str) -> Tensor:
    states, mask = model(**inputs, use_cache=False).last_hidden_state, inputs["attention_mask"]
    if pooling == "cls":
        pooled = states[:, 0]
    elif pooling == "mean":
        pooled = (states.float() * mask.unsqueeze(-1)).sum(1) / mask.sum(1, keepdim=True)
    else:
        pooled = states[torch.arange(len(states), device=states.device), mask.sum(1) - 1]
    return F.normalize(pooled.float(), dim=-1)


def batch(documents: list[Document], seed: int, step: int) -> tuple[list[list[int]], list[list[int]]]:
    """Step `step`'s batch: nothing but the seed and the step decides it."""
    pick = random.Random(f"{seed}/{step}")
    tokens = pick.choice(DOCUMENT_TOKENS)
    drawn = [draw(document, tokens, pick) for document in pick.sample(documents, min(BATCH, len(documents)))]
    queries, passages = zip(*drawn, strict=True)
    return list(queries), list(passages)


def learning_rate(step: int, steps: int, rate: float) -> float:
    """One cycle, linear up over the first tenth and linear down to nothing."""
    warm = max(1, steps // 10)
    return rate * (step + 1) / warm if step < warm else rate * (steps - step) / (steps - warm)


def train(options: argparse.Namespace) -> None:
    torch.manual_seed(options.seed)
    device = torch.device(options.device or ("cuda" if torch.cuda.is_available() else "cpu"))
    base = base_folder(options.base)
    model = build(base, options.pooling).to(device)
    trained = {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}
    print(
        f"{sum(parameter.numel() for parameter in trained.values()):,} parameters are trained on {device}", flush=True
    )
    optimiser = torch.optim.AdamW(trained.values(), lr=options.rate, weight_decay=0.01)
    tokenizer = Tokenizer.from_file(str(base / "tokenizer.json"))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    documents = read(options.pairs, tokenizer)
    options.output.mkdir(parents=True, exist_ok=True)
    checkpoint = options.output / "checkpoint.safetensors"
    pairs_sha256 = hashlib.sha256(options.pairs.read_bytes()).hexdigest()
    identity = {
        "pairs": pairs_sha256,
        **{name: str(getattr(options, name)) for name in ("pooling", "seed", "steps", "rate")},
    }
    start = resume(checkpoint, trained, optimiser, identity) if checkpoint.exists() else 0
    began = time.perf_counter()
    model.train()
    for dropout in (module for module in model.modules() if isinstance(module, nn.Dropout)):
        dropout.p = 0.0
    with (options.output / "log.jsonl").open("a", encoding="utf-8") as log:
        for step in range(start, options.steps):
            for group in optimiser.param_groups:
                group["lr"] = learning_rate(step, options.steps, options.rate)
            queries, passages = (pad(rows, device) for rows in batch(documents, options.seed, step))
            with torch.autocast(device.type, torch.bfloat16):
                scores = embed(model, queries, options.pooling) @ embed(model, passages, options.pooling).T
            target = torch.arange(len(scores), device=device)
            scores = scores.float() / TEMPERATURE
            loss = (F.cross_entropy(scores, target) + F.cross_entropy(scores.T, target)) / 2
            optimiser.zero_grad(set_to_none=True)
            loss.backward()
            nn.utils.clip_grad_norm_(trained.values(), 1.0)
            optimiser.step()
            if step % 50 == 0 or step == options.steps - 1:
                entry = {"step": step, "loss": round(loss.item(), 4), "seconds": round(time.perf_counter() - began, 1)}
                print(entry, flush=True)
                log.write(json.dumps(entry) + "\n")
                log.flush()
            if (step + 1) % CHECKPOINT_EVERY == 0:
                save(checkpoint, trained, optimiser, {**identity, "step": str(step + 1)})
    adapter = {name: parameter.detach().half().cpu().contiguous() for name, parameter in trained.items()}
    save_file(adapter, options.output / "adapter.safetensors", metadata={"pooling": options.pooling, "rank": str(RANK)})


def save(path: Path, trained: dict[str, Tensor], optimiser: torch.optim.Optimizer, metadata: dict[str, str]) -> None:
    """Parameters and the optimiser's state, whole or not at all."""
    tensors = {f"parameter/{name}": parameter.detach().cpu().contiguous() for name, parameter in trained.items()}
    for name, parameter in trained.items():
        for key, value in optimiser.state[parameter].items():
            tensors[f"{key}/{name}"] = value.detach().cpu().contiguous()
    temporary = path.with_suffix(".tmp")
    save_file(tensors, temporary, metadata=metadata)
    temporary.replace(path)


def resume(path: Path, trained: dict[str, Tensor], optimiser: torch.optim.Optimizer, identity: dict[str, str]) -> int:
    """Go on from a checkpoint; returns the step to begin with."""
    from safetensors import safe_open

    with safe_open(path, "pt") as stored:
        metadata = stored.metadata()
        if {name: metadata.get(name) for name in identity} != identity:
            raise ValueError(f"{path} is a checkpoint of another run ({metadata}): choose another --output.")
        step = int(metadata["step"])
        with torch.no_grad():
            for name, parameter in trained.items():
                parameter.copy_(stored.get_tensor(f"parameter/{name}"))
                state = {key: stored.get_tensor(f"{key}/{name}") for key in ("step", "exp_avg", "exp_avg_sq")}
                moved = {key: value if key == "step" else value.to(parameter.device) for key, value in state.items()}
                optimiser.state[parameter] = moved
    print(f"going on from step {step}", flush=True)
    return step


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pooling", choices=list(DEFAULTS), required=True)
    parser.add_argument(
        "--pairs", type=Path, required=True, help="JSON Lines (.gz): text, pairs [[query, position], …]"
    )
    parser.add_argument("--base", help="folder or hub name of all-MiniLM-L6-v2 (default: of the extra `demo`)")
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--steps", type=int, help="default: 1,200 (cls, mean), 1,600 (last)")
    parser.add_argument("--rate", type=float, help="default: 6e-4 (cls, mean), 8e-4 (last)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device")
    options = parser.parse_args()
    for name, value in DEFAULTS[options.pooling].items():
        if getattr(options, name) is None:
            setattr(options, name, value)
    train(options)


if __name__ == "__main__":
    main()
