"""How a batch is laid out for the device: padded, padded without a mask, or without padding.

On a GPU one padded text costs a whole batch its fast attention. Where torch has a kernel for texts of different lengths,
they stand one behind the other instead, as sentence-transformers lays them out for FlashAttention. A model is compared
with its padded pass before that is relied on.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Router
from torch import Tensor, nn

from evenspan.core.install import attached
from evenspan.core.last_layer import looked_into
from evenspan.core.layers import attention_modules
from evenspan.core.packed import runs_on
from evenspan.core.verifying import tolerance
from evenspan.models.features import Ids, Layout, TextFeatures

_logger = logging.getLogger(__name__)
_FLOAT32 = (
    "The model is in float32, for which this GPU has no attention without padding: batches are padded, and slower. Half "
    "precision is faster: save the model in it, or load it with model_kwargs={'dtype': 'bfloat16'} (or 'float16')."
)
_PROBE_LENGTHS = (9, 40, 300, 3)
# By the model: what spoke against batches without padding when they were tried, by dtype, setting and place.
_trials: WeakKeyDictionary[nn.Module, dict[tuple[Any, ...], str | None]] = WeakKeyDictionary()


class Layouts:
    """Chooses the layouts of the batches of one call."""

    def __init__(self, features: TextFeatures, attentions: Mapping[int, nn.Module] | None = None) -> None:
        self.features, self.attentions = features, attentions

    @classmethod
    def of(
        cls, model: SentenceTransformer, features: TextFeatures, device: torch.device, options: Mapping[str, Any]
    ) -> Layouts:
        """Those that a model can have where it is; what was found out about it is remembered."""
        reason = _why_padded(model, features, device)
        if reason is not None:
            _logger.debug("Batches are padded: %s.", reason)
            return cls(features)
        transformer: Any = next(iter(model))
        setting, cast = options.get("setting"), torch.is_autocast_enabled(device.type)
        dtypes = (model.dtype, torch.get_autocast_dtype(device.type) if cast else None)
        key = (dtypes, device, str(setting), bool(options.get("calibrate")), features.first_position)
        known = _trials.setdefault(transformer.model, {})
        packing = cls(features, attention_modules(transformer.model))
        if key not in known:
            is_first = all(dtypes != other for other, *_ in known)
            known[key] = packing._why_not(model, device, options)
            if known[key] is not None and is_first and (dtypes[1] or dtypes[0]) == torch.float32:
                _logger.warning(_FLOAT32)
        reason = known[key]
        _logger.debug("Batches are %s.", "without padding" if reason is None else f"padded: {reason}")
        return packing if reason is None else cls(features)

    @property
    def padded(self) -> bool:
        """Whether padding counts among the tokens of a batch."""
        return self.attentions is None and not self.features.flattens

    def choose(self, ids: Sequence[Ids]) -> Layout:
        """The layout of a batch of these texts."""
        if self.attentions is None:
            return self.features.layout
        return "padded" if len({len(own) for own in ids}) == 1 or min(map(len, ids)) == 0 else "flat"

    def batch(self, ids: Sequence[Ids], layout: Layout, *, pinned: bool = False) -> dict[str, Any]:
        """The features of a batch, on the CPU."""
        made = self.features.batch(ids, layout, pinned=pinned)
        if self.attentions is None:
            return made
        if layout == "flat":
            # A mask of four dimensions is handed down as it is, and nobody reads it: transformers would build one that
            # is as large as the batch squared.
            made["attention_mask"] = torch.zeros(1, 1, 1, 1, dtype=torch.bool, pin_memory=pinned)
        elif len({len(own) for own in ids}) == 1:
            made.pop("attention_mask", None)  # every token is one, and attention without a mask is faster
        return made

    @contextmanager
    def installed(self) -> Iterator[None]:
        """While this lasts, batches of all layouts can be run."""
        if self.attentions is None:
            yield
            return
        with attached(self.attentions):
            yield

    def _why_not(self, model: SentenceTransformer, device: torch.device, options: Mapping[str, Any]) -> str | None:
        """What speaks against it, None if texts have the same vectors without padding as with it."""
        limit = self.features.limit or max(_PROBE_LENGTHS)
        (word,) = self.features.tokenize(["a few words of a probe"]).ids
        ids = [np.resize(word, min(length, limit)).astype(np.int32) for length in _PROBE_LENGTHS]
        try:
            with torch.inference_mode(), self.installed():
                padded, flat = (
                    _vectors(model, features, device, options)
                    for features in (self.features.batch(ids), self.batch(ids, "flat"))
                )
        except torch.OutOfMemoryError:
            raise
        except Exception as error:  # whatever it is, the padded pass does without
            return f"without padding this model fails: {error}"
        off = (padded - flat).norm(dim=1) / padded.norm(dim=1).clamp(min=1e-12)
        is_same = bool((off <= tolerance(model.dtype or torch.float32)).all())
        return None if is_same else "without padding vectors differ"


def _vectors(
    model: SentenceTransformer, features: Mapping[str, Any], device: torch.device, options: Mapping[str, Any]
) -> Tensor:
    moved = {name: value.to(device) if isinstance(value, Tensor) else value for name, value in features.items()}
    vectors: Tensor = model(moved, **options)["sentence_embedding"]
    return vectors.float()


def _why_padded(model: SentenceTransformer, features: TextFeatures, device: torch.device) -> str | None:
    """What speaks against batches without padding, None if nothing does."""
    if not runs_on(device):
        return f"there is no other kernel for {device.type}"
    if features.flattens:
        return "sentence-transformers leaves out the padding itself"
    if isinstance(next(iter(model)), Router):
        return "the model has several routes"
    module: Any = next(iter(model))
    reasons = {
        f"the attention is {module.model.config._attn_implementation}": module.model.config._attn_implementation
        != "sdpa",
        "the model was told to": getattr(module, "unpad_inputs", None) is False,
        "the model is compiled": model._compiled_call_impl is not None,
        "someone looks at its layers": looked_into(model.modules()),
        "its attention is not transformers' own": not _has_attention(module.model),
    }
    return next((reason for reason, applies in reasons.items() if applies), None)


def _has_attention(model: nn.Module) -> bool:
    try:
        return bool(attention_modules(model))
    except (TypeError, ValueError, NotImplementedError):
        return False
