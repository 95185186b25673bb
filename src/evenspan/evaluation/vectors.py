"""Vectors of a collection's documents and queries, streamed through the cache."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sentence_transformers import SentenceTransformer
from tqdm import tqdm

from evenspan.evaluation.cache import VectorCache
from evenspan.evaluation.methods import Method, Vectors
from evenspan.evaluation.search import DocumentVectors, check_vectors
from evenspan.models.calibrating import uncalibrated

_SHARD = 256  # texts that are encoded and stored at a time


def fingerprint(model: SentenceTransformer) -> str:
    """A digest of a model's weights: two models never share vectors, whatever they are called."""
    digest = hashlib.sha256()
    for name, tensor in sorted(model.state_dict().items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


class Encoder:
    """Encodes with one model; everything the vectors depend on is part of the cache's key.

    Vectors come out with length 1, so that a dot product is the cosine, unless the model says that it wants dot products.
    """

    def __init__(
        self,
        model: SentenceTransformer,
        *,
        cache: Path | None = None,
        batch_size: int = 32,
        query_prompt: str | None = None,
        document_prompt: str | None = None,
        progress: bool = True,
    ) -> None:
        self.model, self.cache, self.batch_size, self.progress = model, cache, batch_size, progress
        self.query_prompt, self.document_prompt = query_prompt, document_prompt
        self.weights = fingerprint(model)
        self.similarity = str(model.similarity_fn_name)
        if self.similarity not in ("cosine", "dot"):
            raise ValueError(f"The model compares by {self.similarity!r}; evaluation knows cosine and dot.")

    def documents(self, method: Method, corpus: Mapping[str, str], part: str = "") -> DocumentVectors:
        """The vectors of a corpus under a method; `corpus` maps ids to texts, `part` names its place in the cache."""

        def encode(texts: Sequence[str]) -> Vectors:
            return method.encode(
                self.model, texts, batch_size=self.batch_size, prompt=self.document_prompt, show_progress_bar=False
            )

        vectors = self._all(corpus, encode, method.name, self.document_prompt, "document", part)
        parts = [vectors[text] for text in corpus.values()]
        counts = np.array([len(one) for one in parts])
        stacked = self._ready([name for name, one in zip(corpus, parts, strict=True) for _ in one], parts, "documents")
        return DocumentVectors(list(corpus), stacked, counts)

    def queries(self, queries: Mapping[str, str], part: str = "") -> NDArray[np.float32]:
        """The vectors of queries, never calibrated; `queries` maps ids to texts."""

        def encode(texts: Sequence[str]) -> Vectors:
            options: dict[str, Any] = {
                "batch_size": self.batch_size,
                "show_progress_bar": False,
                "prompt": self.query_prompt,
            }
            with uncalibrated(self.model):
                tensor = self.model.encode_query(list(texts), convert_to_tensor=True, **options)
            return list(tensor.float().cpu().numpy()[:, None])

        vectors = self._all(queries, encode, "none", self.query_prompt, "query", part)
        return self._ready(list(queries), [vectors[text] for text in queries.values()], "queries")

    def _ready(self, ids: list[str], parts: Vectors, what: str) -> NDArray[np.float32]:
        """All vectors in one array, checked and of length 1."""
        stacked = np.concatenate(parts)
        check_vectors(ids, stacked, what)
        if self.similarity == "cosine":
            stacked = stacked / np.maximum(np.linalg.norm(stacked, axis=1, keepdims=True), np.float32(1e-12))
        return stacked

    def _all(
        self,
        texts: Mapping[str, str],
        encode: Callable[[Sequence[str]], Vectors],
        method: str,
        prompt: str | None,
        role: str,
        part: str,
    ) -> VectorCache:
        vectors = VectorCache(self.cache, self._setting(method, prompt, role), part)
        # Sorted by length, then cut: the same texts always share a batch, so that a run that was interrupted ends with
        # the same vectors, bit for bit, as one that was not.
        unique = sorted(set(texts.values()), key=lambda text: (-len(text), text))
        what = {"query": "queries", "document": "documents"}[role]
        bar = tqdm(total=len(unique), desc=f"{what}, {method}", disable=not self.progress, unit="text")
        with bar:
            for start in range(0, len(unique), _SHARD):
                shard = unique[start : start + _SHARD]
                missing = [text for text in shard if text not in vectors]
                if missing:
                    vectors.add(missing, encode(missing))
                bar.update(len(shard))
        return vectors

    def fill(
        self,
        methods: Sequence[str],
        corpus: Mapping[str, str],
        encode: Callable[[Sequence[str], Sequence[str]], Mapping[str, Vectors]],
        part: str = "",
    ) -> None:
        """Put the vectors of a corpus under several methods into the cache, where they are not there yet.

        `encode` takes texts and the names of the methods whose vectors are missing.
        """
        caches = {
            name: VectorCache(self.cache, self._setting(name, self.document_prompt, "document"), part)
            for name in methods
        }
        unique = sorted(set(corpus.values()), key=lambda text: (-len(text), text))
        bar = tqdm(
            total=len(unique), desc=f"documents, {len(methods)} settings", disable=not self.progress, unit="text"
        )
        with bar:
            for start in range(0, len(unique), _SHARD):
                shard = unique[start : start + _SHARD]
                wanting = [name for name, cache in caches.items() if any(text not in cache for text in shard)]
                if wanting:
                    missing = [text for text in shard if any(text not in caches[name] for name in wanting)]
                    for name, vectors in encode(missing, wanting).items():
                        pairs = [
                            (text, one) for text, one in zip(missing, vectors, strict=True) if text not in caches[name]
                        ]
                        caches[name].add([text for text, _ in pairs], [one for _, one in pairs])
                bar.update(len(shard))

    def _setting(self, method: str, prompt: str | None, role: str) -> dict[str, Any]:
        model, tokenizer = self.model, self.model.tokenizer
        config = {} if model.config is None else model.config.to_dict()
        return {
            "weights": self.weights,
            "config": {
                name: value for name, value in config.items() if name not in ("_name_or_path", "transformers_version")
            },
            "modules": [_module_setting(module) for module in model],
            "tokenizer": _tokenizer_digest(tokenizer),
            "sides": [getattr(tokenizer, f"{side}_side", None) for side in ("padding", "truncation")],
            "max_tokens": model.max_seq_length,
            "method": method,
            "chunker": _folder_digest(method),
            "role": role,
            "prompt": prompt if prompt is not None else [model.prompts, model.default_prompt_name],
            "truncate_dim": model.truncate_dim,
            "dtype": str(model.dtype),
            "attention": getattr(model.config, "_attn_implementation", None),
            "device": model.device.type,
            "versions": [metadata.version(name) for name in ("evenspan", "transformers", "sentence-transformers")],
        }


def _module_setting(module: Any) -> list[Any]:
    """A module's kind and settings, the same for a model that is calibrated and one that is not."""
    settings = module.get_config_dict() if hasattr(module, "get_config_dict") else {}
    return [type(module).__name__.removeprefix("Calibrated"), repr(settings)]


def _folder_digest(method: str) -> str | None:
    """A digest of the local model that a method's chunker uses, if it names one."""
    named = re.search(r"embedder=([^,]*)", method)
    folder = Path(named[1]) if named else None
    if folder is None or not folder.is_dir():
        return None
    digest = hashlib.sha256()
    for file in sorted(path for path in folder.rglob("*") if path.is_file()):
        digest.update(file.name.encode() + file.read_bytes())
    return digest.hexdigest()


def _tokenizer_digest(tokenizer: Any) -> str:
    backend = getattr(tokenizer, "backend_tokenizer", None)
    state: dict[str, Any] = {"class": type(tokenizer).__name__} if backend is None else json.loads(backend.to_str())
    # Each call leaves its own padding and truncation behind.
    kept = {name: value for name, value in state.items() if name not in ("padding", "truncation")}
    return hashlib.sha256(json.dumps(kept, sort_keys=True).encode()).hexdigest()
