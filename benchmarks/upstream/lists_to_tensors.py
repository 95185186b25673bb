"""transformers: a fast tokenizer spends most of its time on turning lists into tensors. For a report upstream.

    python benchmarks/upstream/lists_to_tensors.py

Tokenizes the same documents in three ways, by turns, and prints medians: with `return_tensors="pt"`, without tensors, and
from the Rust tokenizer's encodings through numpy. All three give the same ids. Needs nothing but torch, tokenizers and
transformers. The time goes into `flatten` of `tokenization_utils_base.py`, which looks at every token in Python.
"""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable

import numpy as np
import torch
import transformers
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace

DOCUMENTS, POSITIONS, TURNS = 200, 1500, 5

words = [f"word{number}" for number in range(5000)]
backend = Tokenizer(
    WordLevel({"[PAD]": 0, "[UNK]": 1} | {word: place for place, word in enumerate(words, 2)}, unk_token="[UNK]")
)
backend.pre_tokenizer = Whitespace()
tokenizer = transformers.PreTrainedTokenizerFast(
    tokenizer_object=backend, pad_token="[PAD]", unk_token="[UNK]", model_max_length=POSITIONS
)
rng = random.Random(0)
texts = [" ".join(rng.choices(words, k=POSITIONS)) for _ in range(DOCUMENTS)]
plain = Tokenizer.from_str(backend.to_str())
plain.enable_truncation(POSITIONS)


def with_tensors() -> torch.Tensor:
    return tokenizer(texts, padding=True, truncation=True, return_tensors="pt")["input_ids"]


def without_tensors() -> list[list[int]]:
    return tokenizer(texts, padding=True, truncation=True)["input_ids"]


def through_numpy() -> torch.Tensor:
    encodings = plain.encode_batch_fast(texts)
    ids = np.zeros((len(encodings), max(map(len, encodings))), dtype=np.int64)
    for row, encoding in enumerate(encodings):
        ids[row, : len(encoding)] = encoding.ids
    return torch.from_numpy(ids)


def main() -> None:
    assert torch.equal(with_tensors(), through_numpy())
    assert with_tensors().tolist() == without_tensors()
    ways: tuple[Callable[[], object], ...] = (with_tensors, without_tensors, through_numpy)
    times: dict[str, list[float]] = {way.__name__: [] for way in ways}
    for _ in range(TURNS):
        for way in ways:
            began = time.perf_counter()
            way()
            times[way.__name__].append(time.perf_counter() - began)
    print(
        f"transformers {transformers.__version__}, torch {torch.__version__}: {DOCUMENTS} documents of {POSITIONS} tokens"
    )
    middle = {name: statistics.median(of_way) for name, of_way in times.items()}
    for name, seconds in middle.items():
        print(f"  {name:16} {seconds:.3f} s")
    print(f"  conversion       {middle['with_tensors'] - middle['without_tensors']:.3f} s")


if __name__ == "__main__":
    main()
