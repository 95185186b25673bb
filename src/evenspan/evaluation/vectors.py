"""Vectors of a collection's documents and queries, streamed through the cache."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from sentence_transformers import SentenceTransformer

from evenspan.corpus.sentences import sentence_rules
from evenspan.encoding import Encoder, unit_length
from evenspan.evaluation.cache import VectorCache
from evenspan.evaluation.methods import Method, Plain, Vectors
from evenspan.evaluation.search import DocumentVectors, check_vectors
from evenspan.identity import ModelIdentity, encoding_setting
from evenspan.progress import ProgressBar

_SHARD, _GPU_SHARD = 256, 2048  # texts that are encoded and stored at a time

Role = Literal["document", "query"]
EncodeMany = Callable[[Sequence[str], Sequence[str]], Mapping[str, Vectors]]


class CachedEncoder:
    """Encodes with one model; everything the vectors depend on is part of the cache's key.

    Vectors come out with length 1, so that a dot product is the cosine, unless the model says that it wants dot products.
    """

    def __init__(
        self,
        model: SentenceTransformer,
        *,
        cache: str | Path | None = None,
        batch_size: int = 32,
        query_prompt: str | None = None,
        document_prompt: str | None = None,
    ) -> None:
        self.similarity = str(model.similarity_fn_name)
        if self.similarity not in ("cosine", "dot"):
            raise ValueError(f"The model compares by {self.similarity!r}; evaluation supports cosine and dot.")
        prompts: dict[Role, str | None] = {"document": document_prompt, "query": query_prompt}
        # What is cached is as the model made it; vectors that are not finite are refused by name below.
        self.encoders = {
            role: Encoder(model, role=role, prompt=prompt, batch_size=batch_size, unit=False, check_finite=False)
            for role, prompt in prompts.items()
        }
        self.model, self.batch_size = model, batch_size
        self.cache = None if cache is None else Path(cache)
        self.identity = ModelIdentity.of(model)
        self._model_settings: dict[Role, dict[str, Any]] = {}

    def documents(self, method: Method, corpus: Mapping[str, str], part: str, bar: ProgressBar) -> DocumentVectors:
        """The vectors of a corpus under a method; `corpus` maps ids to texts, `part` names its place in the cache."""
        vectors = self._vectors(method, "document", corpus, part, bar)
        counts = np.array([len(of_document) for of_document in vectors])
        ids = np.repeat(np.array(list(corpus), dtype=object), counts).tolist()
        return DocumentVectors(list(corpus), self._ready(ids, vectors, "documents"), counts)

    def queries(self, queries: Mapping[str, str], part: str, bar: ProgressBar) -> NDArray[np.float32]:
        """The vectors of queries, never calibrated; `queries` maps ids to texts."""
        return self._ready(list(queries), self._vectors(Plain(), "query", queries, part, bar), "queries")

    def _vectors(self, method: Method, role: Role, texts: Mapping[str, str], part: str, bar: ProgressBar) -> Vectors:
        def encode(missing: Sequence[str], _: object) -> dict[str, Vectors]:
            return {method.name: method.encode(self.encoders[role], missing, bar)}

        cached = self.fill([method.name], texts.values(), encode, part, bar, role)[method.name]
        return [cached[text] for text in texts.values()]

    def _ready(self, ids: list[str], vectors: Vectors, what: str) -> NDArray[np.float32]:
        """All vectors in one array, checked and of length 1."""
        stacked = np.concatenate(vectors)
        check_vectors(ids, stacked, what)
        return unit_length(stacked) if self.similarity == "cosine" else stacked

    def fill(
        self, methods: Sequence[str], texts: Iterable[str], encode: EncodeMany, part: str, bar: ProgressBar, role: Role
    ) -> dict[str, VectorCache]:
        """Put the vectors of texts under one or more methods into the cache, where they are not there yet.

        `encode` takes texts and the names of the methods whose vectors are missing, and moves the bar.
        """
        caches = {name: VectorCache(self.cache, self._setting(name, role), part) for name in methods}
        # Sorted by length, then cut: the same texts always share a batch, so that a run that was interrupted ends with
        # the same vectors, bit for bit, as one that was not.
        unique = sorted(set(texts), key=lambda text: (-len(text), text))
        size = _GPU_SHARD if self.model.device.type == "cuda" else _SHARD
        for start in range(0, len(unique), size):
            shard = unique[start : start + size]
            missing = {name: [text for text in shard if text not in cache] for name, cache in caches.items()}
            wanting = [name for name in methods if missing[name]]
            together = [text for text in shard if any(text not in caches[name] for name in wanting)]
            bar.advance(len(shard) - len(together))
            for name, vectors in (encode(together, wanting) if together else {}).items():
                by_text = dict(zip(together, vectors, strict=True))
                caches[name].add(missing[name], [by_text[text] for text in missing[name]])
        return caches

    def _setting(self, method: str, role: Role) -> dict[str, Any]:
        """What vectors of a method are cached under."""
        if role not in self._model_settings:  # a large tokenizer takes seconds to read
            prompt = self.encoders[role].prompt
            self._model_settings[role] = encoding_setting(self.model, self.identity.weights, prompt)
        setting = {**self._model_settings[role], "method": method, "chunker": _chunker_digest(method), "role": role}
        if "cut=sentences" in method:
            setting["sentences"] = sentence_rules()
        if self.similarity == "cosine":
            setting["method"] = re.sub(r"^token-average,", "late-chunking,", method)  # as it was called first
        elif "average" in method:
            setting["length"] = "as averaged"  # earlier versions made it 1
        return setting


def _chunker_digest(method: str) -> str | None:
    """A digest of the local model that a method's chunker uses, if it names one."""
    named = re.search(r"embedder=([^,]*)", method)
    if named is None or not Path(named[1]).is_dir():
        return None
    digest = hashlib.sha256()
    for file in sorted(path for path in Path(named[1]).rglob("*") if path.is_file()):
        digest.update(file.name.encode() + file.read_bytes())
    return digest.hexdigest()
