"""Which model, weights, tokenizer and versions these are: for keys of caches, and for results, audits and indexes."""

from __future__ import annotations

import hashlib
import json
import platform
from dataclasses import asdict, dataclass
from importlib import metadata
from typing import Any

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Module, Transformer

_SET_BY_CALLS = ("padding", "truncation")  # of a tokenizer: each call leaves its own behind
_IN_SETTINGS = {"name": "model", "weights": "weights_sha256"}  # what results and audits call these


@dataclass(frozen=True)
class ModelIdentity:
    """What tells a model from others, wherever it lies.

    Attributes:
        name: its folder or its name on the hub.
        revision: its commit on the hub, if it came from there.
        weights: `weights_digest` of it.
        max_tokens: where texts are cut off.
        dtype: of the weights.
        device: what it runs on.
        attention: the implementation that transformers runs.
    """

    name: str | None
    revision: str | None
    weights: str
    max_tokens: int | None
    dtype: str
    device: str
    attention: str | None

    @classmethod
    def of(cls, model: SentenceTransformer, module: Any = None) -> ModelIdentity:
        """The identity of a model as it is now; `module` is the one to name it after, by default its first transformer."""
        config: Any = model.config if module is None else getattr(getattr(module, "model", None), "config", None)
        return cls(
            name=getattr(config, "_name_or_path", None),
            revision=getattr(config, "_commit_hash", None),
            weights=weights_digest(model),
            max_tokens=model.max_seq_length if module is None else getattr(module, "max_seq_length", None),
            dtype=str(model.dtype).removeprefix("torch."),
            device=model.device.type,
            attention=getattr(config, "_attn_implementation", None),
        )

    def to_setting(self) -> dict[str, Any]:
        """What results and audits say of a model."""
        return {_IN_SETTINGS.get(name, name): value for name, value in asdict(self).items()}


def weights_digest(model: SentenceTransformer, dtype: torch.dtype | None = None) -> str:
    """A digest of a model's weights: two models never share vectors, whatever they are called.

    With `dtype`, of what the weights are once the model was moved to it.
    """
    digest = hashlib.sha256()
    for name, stored in sorted(model.state_dict().items()):
        tensor = stored.to(dtype) if dtype is not None and stored.is_floating_point() else stored
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy())
    return digest.hexdigest()


def vectors_digest(model: SentenceTransformer, weights: str | None = None) -> str:
    """A digest of the weights, the modules with their settings, and the tokenizer: all that makes a vector of a text.

    `weights` is `weights_digest(model)`, if it is known already.
    """
    digest = hashlib.sha256((weights or weights_digest(model)).encode())
    for module in model.modules():
        if isinstance(module, Transformer):  # its weights are in; its class changes with calibration
            digest.update((_tokenizer_rules(module.tokenizer) or "").encode())
        elif isinstance(module, Module):
            settings = json.dumps(module.get_config_dict(), sort_keys=True, default=str)
            digest.update(f"{type(module).__name__} {settings}".encode())
    return digest.hexdigest()


def tokenizer_digest(tokenizer: Any) -> str:
    """A digest of what a tokenizer does with a text; of a slow one, of its class."""
    rules = _tokenizer_rules(tokenizer) or json.dumps({"class": type(tokenizer).__name__})
    return hashlib.sha256(rules.encode()).hexdigest()


def encoding_setting(model: SentenceTransformer, weights: str, prompt: str | None) -> dict[str, Any]:
    """Everything of a model that its vectors depend on, to the last bit: what a cache of vectors is keyed by."""
    tokenizer, config = model.tokenizer, {} if model.config is None else model.config.to_dict()
    return {
        "weights": weights,
        "config": {name: config[name] for name in config if name not in ("_name_or_path", "transformers_version")},
        "modules": [_module_setting(module) for module in model],
        "tokenizer": tokenizer_digest(tokenizer),
        "sides": [getattr(tokenizer, f"{side}_side", None) for side in ("padding", "truncation")],
        "max_tokens": model.max_seq_length,
        "prompt": prompt if prompt is not None else [model.prompts, model.default_prompt_name],
        "truncate_dim": model.truncate_dim,
        "dtype": str(model.dtype),
        "attention": getattr(model.config, "_attn_implementation", None),
        "device": model.device.type,
        "versions": list(versions("evenspan", "transformers", "sentence-transformers").values()),
    }


def versions(*packages: str) -> dict[str, str | None]:
    """The versions of packages, and of `python`; None for one that is not installed."""
    return {name: _version(name) for name in packages}


def _version(package: str) -> str | None:
    if package == "python":
        return platform.python_version()
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _module_setting(module: Any) -> list[Any]:
    """A module's kind and settings, the same for a model that is calibrated and one that is not."""
    settings = module.get_config_dict() if hasattr(module, "get_config_dict") else {}
    return [type(module).__name__.removeprefix("Calibrated"), repr(settings)]


def _tokenizer_rules(tokenizer: Any) -> str | None:
    """What a tokenizer does with a text, as JSON; None for a slow one."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        return None
    try:
        whole = json.loads(backend.to_str())
    except Exception:  # tokenizers has no narrower one for parts that are written in Python
        whole = {"class": type(tokenizer).__name__, "vocabulary": backend.get_vocab()}
    return json.dumps({name: value for name, value in whole.items() if name not in _SET_BY_CALLS}, sort_keys=True)
