"""A calibrated model's own `encode` of plain lists of texts, by the way that keeps a device busy."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from sentence_transformers import SentenceTransformer

from evenspan.models.batches import MOST_TEXTS, BatchRunner
from evenspan.models.budget import budget_for
from evenspan.models.standard import NotStandardError, text_features
from evenspan.models.windows import FIRST_TEXTS, text_windows
from evenspan.progress import ProgressBar

_FEW_TEXTS = 8  # are left to sentence-transformers
_BATCH_SIZE = 32  # sentence-transformers' own: nobody asked for it
_OPTIONS = {"task", "calibrate", "pooled_only", "setting"}
_logger = logging.getLogger(__name__)


def usual_vectors(model: SentenceTransformer, given: Mapping[str, Any], options: Mapping[str, Any]) -> Any:
    """What `encode` returns for the arguments that it was given; None if the call is not a usual one.

    `options` are what the model is called with for each batch.
    """
    texts: Any = given["inputs"] if "inputs" in given else given.get("sentences")
    reason = _why_unusual(texts, given, model)
    try:
        if reason is not None:
            raise NotStandardError(reason)
        features = text_features(model, options.get("task"), _prompt(model, given))
    except NotStandardError as error:
        _logger.debug("Texts are encoded by sentence-transformers: %s.", error)
        return None
    on_gpu, batch_size = model.device.type == "cuda", int(given.get("batch_size", _BATCH_SIZE))
    width = given.get("truncate_dim")
    with ProgressBar("Encoding", len(texts), shown=bool(given.get("show_progress_bar"))) as bar:
        runner = BatchRunner(
            model,
            features,
            budget_for(model, model.device, grows=True),
            options,
            most_texts=MOST_TEXTS if on_gpu and batch_size == _BATCH_SIZE else batch_size,
            unit=bool(given.get("normalize_embeddings")),
            dimensions=model.truncate_dim if width is None else width,
            done=bar.advance,
        )
        windows = (features.tokenize(window).ids for window in list_windows(texts, on_gpu=on_gpu))
        vectors = np.concatenate(list(runner.arrays(windows)))
    if given.get("convert_to_numpy", True) and not given.get("convert_to_tensor"):
        return vectors
    tensor = torch.from_numpy(vectors).to(
        device=runner.device, dtype=model.dtype if model.dtype == torch.bfloat16 else None
    )
    return tensor if given.get("convert_to_tensor") else list(tensor)


def list_windows(texts: Sequence[str], *, on_gpu: bool) -> Iterator[list[str]]:
    """The windows of a list: all of it, so that batches are alike; for a GPU parts, the first of them small."""
    return text_windows(texts, first=FIRST_TEXTS) if on_gpu else iter([list(texts)] if len(texts) else [])


def _prompt(model: SentenceTransformer, given: Mapping[str, Any]) -> str:
    """What stands in front of the texts, as `encode` has it."""
    prompt, name = given.get("prompt"), given.get("prompt_name")
    if prompt is None:
        prompt = model.prompts.get(str(model.default_prompt_name if name is None else name))
    return prompt or ""


def _why_unusual(texts: Any, given: Mapping[str, Any], model: SentenceTransformer) -> str | None:
    """Why a call of `encode` is left to sentence-transformers, None if it is a usual one."""
    name = given.get("prompt_name")
    reasons = {
        "these are no lists of texts": not isinstance(texts, list) or not all(isinstance(text, str) for text in texts),
        "these are few texts": isinstance(texts, list) and len(texts) <= _FEW_TEXTS,
        "something else than vectors is wanted": given.get("output_value", "sentence_embedding")
        != "sentence_embedding",
        f"the precision is {given.get('precision')}": given.get("precision", "float32") not in ("float32", None),
        "a device, a pool or a size of chunks is given": any(
            given.get(key) for key in ("device", "pool", "chunk_size")
        ),
        "there are other options": not _OPTIONS.issuperset(given.get("kwargs", {})),
        "the prompt is not known": name is not None and (given.get("prompt") is not None or name not in model.prompts),
        "the batch size is not one": given.get("batch_size", 1) < 1,
        "the model is spread over processes": getattr(model, "_distributed_inference", None) is not None,
    }
    return next((reason for reason, applies in reasons.items() if applies), None)
