"""The part of a SentenceTransformer that turns a document into a vector: which module, pooled how, or why not."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Router, Transformer
from sentence_transformers.sentence_transformer.modules import Pooling
from torch import nn

from evenspan.core.baskets import PoolingToken
from evenspan.core.calls import pooled_layer_works, try_out
from evenspan.core.last_layer import find_layers
from evenspan.core.layers import AttentionLayers
from evenspan.models.modules import (
    POOLING_TOKENS,
    CalibratedSentenceTransformer,
    CalibratedTransformer,
    reads_pooled_only,
)


@dataclass(frozen=True)
class Pipeline:
    """The transformer that encodes documents and the pooling that reads its vector."""

    transformer: Transformer
    pooling: Pooling
    pooling_token: PoolingToken
    reads_pooled_only: bool  # whether nothing between the transformer and the vector looks at other tokens

    @classmethod
    def of(cls, model: object) -> Pipeline:
        """Find both in a `SentenceTransformer`, or raise an error that says why it cannot be calibrated."""
        modules = document_modules(_plain_sentence_transformer(model))
        transformer = modules[0] if modules else None
        if not isinstance(transformer, Transformer):
            raise ValueError(
                f"This model cannot be calibrated: its first module is {type(transformer).__name__}, which has no "
                "attention. Calibration needs a Transformer module."
            )
        if type(transformer) not in (Transformer, CalibratedTransformer):
            raise ValueError(
                f"This model cannot be calibrated: its first module is a {type(transformer).__name__} with code of its "
                "own. Build the model from sentence-transformers' own Transformer and Pooling modules."
            )
        if transformer.backend != "torch":
            raise ValueError(
                f"This model cannot be calibrated: it runs on the {transformer.backend!r} back end, outside PyTorch. "
                'Load it with backend="torch".'
            )
        pooling = next((module for module in modules if isinstance(module, Pooling)), None)
        if pooling is None:
            raise ValueError(
                "This model cannot be calibrated: it has no Pooling module, so there is no pooling token. "
                'Add one with pooling_mode="cls" or "lasttoken" if that is how the model was trained.'
            )
        mode = pooling.pooling_mode
        if not isinstance(mode, str) or mode not in POOLING_TOKENS:
            raise ValueError(
                f"This model cannot be calibrated: it pools by {mode!r}, not from one token. Calibration changes what "
                "one pooling token attends to, so it needs a model trained with 'cls' or 'lasttoken' pooling."
            )
        return cls(transformer, pooling, POOLING_TOKENS[mode], reads_pooled_only(modules))

    def layers(self) -> AttentionLayers:
        """The attention layers of the transformer, seen to work; raises as `of` does."""
        layers = AttentionLayers.of(self.transformer.model, self.pooling_token, self.transformer.max_seq_length)
        try_out(self.transformer.model, [layers.modules[index] for index in layers.full], self.pooling_token)
        return layers

    def pooled_layer(self, layers: AttentionLayers, chosen: Sequence[int]) -> nn.Module | None:
        """The last layer, if it is calibrated and can be run for the pooled rows alone."""
        if not self.reads_pooled_only or chosen[-1] != len(layers.modules) - 1:
            return None
        attention = layers.modules[-1]
        (layer,) = find_layers(self.transformer.model, [attention])
        if layer is None or not pooled_layer_works(self.transformer.model, attention, layer, self.pooling_token):
            return None
        return layer


@contextmanager
def overridden(module: nn.Module, forward: Any) -> Iterator[None]:
    """A module with another forward for a while."""
    missing = object()
    before = module.__dict__.get("forward", missing)
    module.__dict__["forward"] = forward
    try:
        yield
    finally:
        if before is missing:
            del module.__dict__["forward"]
        else:
            module.__dict__["forward"] = before


def _plain_sentence_transformer(model: object) -> SentenceTransformer:
    if type(model) in (SentenceTransformer, CalibratedSentenceTransformer):
        return model  # type: ignore[return-value]
    name = type(model).__name__
    if isinstance(model, SentenceTransformer):
        raise TypeError(
            f"{name} cannot be calibrated: it is a subclass of SentenceTransformer with code of its own. "
            "If it encodes as its base class does, calibrate SentenceTransformer(modules=list(model))."
        )
    if type(model).__module__.startswith("sentence_transformers."):
        raise TypeError(
            f"{name} cannot be calibrated: sparse, multi-vector and cross encoders do not read a vector from one "
            "pooling token. Calibration is for a SentenceTransformer with 'cls' or 'lasttoken' pooling."
        )
    if isinstance(model, nn.Module):
        raise TypeError(
            f"{name} is no SentenceTransformer. For a plain transformers model use "
            "`with evenspan.calibrated(model, pooling='cls' or 'last'):`."
        )
    raise TypeError(f"Expected a SentenceTransformer, not {name}; load one with evenspan.load(path_or_name).")


def document_modules(model: SentenceTransformer) -> list[nn.Module]:
    """The modules a document passes, in order; in a Router model those of its document route."""
    modules = list(model)
    if not modules or not isinstance(modules[0], Router):
        return modules
    routes = modules[0].sub_modules
    if "document" not in routes:
        raise ValueError(
            f"This Router model cannot be calibrated: its routes are {sorted(routes)} and none is called 'document'."
        )
    route: Any = routes["document"]
    return [*route, *modules[1:]]
