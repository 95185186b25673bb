"""The part of a SentenceTransformer that turns a document into a vector: which module, pooled how, or why not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Dense, Normalize, Router, Transformer
from sentence_transformers.sentence_transformer.modules import Dropout, LayerNorm, Pooling
from torch import Tensor, nn

from evenspan.core.baskets import PoolingToken
from evenspan.core.families import plain_class_of
from evenspan.core.last_layer import find_layers
from evenspan.core.layers import AttentionLayers
from evenspan.core.probe import last_layer_works, try_out
from evenspan.errors import UnsupportedModelError

POOLING_TOKENS: dict[str, PoolingToken] = {
    "cls": "cls",
    "lasttoken": "last",
    "mean": "mean",
    "mean_sqrt_len_tokens": "mean",
    "weightedmean": "mean",
}
# The names of prompts that stand in front of documents, as `encode_document` looks for them.
DOCUMENT_PROMPTS = ("document", "passage", "corpus")
# The features that say where the tokens of a batch are, padded or packed.
_LAYOUT = ("attention_mask", "cu_seq_lens_q", "seq_idx", "prompt_length")


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
            raise UnsupportedModelError(
                f"This model cannot be calibrated: its first module is {type(transformer).__name__}, which has no "
                "attention. Calibration needs a Transformer module."
            )
        if plain_class_of(transformer) is not Transformer:
            raise UnsupportedModelError(
                f"This model cannot be calibrated: its first module is a {type(transformer).__name__} with code of its "
                "own. Build the model from sentence-transformers' own Transformer and Pooling modules."
            )
        if transformer.backend != "torch":
            raise UnsupportedModelError(
                f"This model cannot be calibrated: it runs on the {transformer.backend!r} back end, outside PyTorch. "
                'Load it with backend="torch".'
            )
        pooling = next((module for module in modules if isinstance(module, Pooling)), None)
        if pooling is None:
            raise UnsupportedModelError(
                "This model cannot be calibrated: it has no Pooling module, so there is no pooling token. "
                'Add one with pooling_mode="cls", "lasttoken" or "mean" if that is how the model was trained.'
            )
        mode = pooling.pooling_mode
        if not isinstance(mode, str) or mode not in POOLING_TOKENS:
            why = "which token it reads differs from dimension to dimension"
            if not isinstance(mode, str):
                why = "each of them would have to be calibrated in another way"
            raise UnsupportedModelError(
                f"This model cannot be calibrated: it pools by {mode!r}, and {why}. Calibration is for models trained with one "
                f"of these: {', '.join(POOLING_TOKENS)}."
            )
        return cls(transformer, pooling, POOLING_TOKENS[mode], reads_pooled_only(modules))

    def layers(self) -> AttentionLayers:
        """The attention layers of the transformer, seen to work; raises as `of` does."""
        layers = AttentionLayers.of(self.transformer.model, self.pooling_token, self.transformer.max_seq_length)
        try_out(self.transformer.model, layers, self.pooling_token)
        return layers

    @cached_property
    def closing_token(self) -> bool | None:
        """Whether the tokenizer ends texts with a special token, seen on one; None where that makes no difference."""
        if self.pooling_token != "mean":
            return None
        tokenizer: Any = self.transformer.tokenizer
        special = tokenizer("text", return_special_tokens_mask=True, verbose=False)["special_tokens_mask"]
        return len(special) > 1 and bool(special[-1])

    def last_layer(self, layers: AttentionLayers) -> nn.Module | None:
        """The last layer, if it can be calibrated for the pooled rows alone and nobody reads the others."""
        if self.pooling_token == "mean" or not self.reads_pooled_only or layers.full[-1] != len(layers.modules) - 1:
            return None
        (layer,) = find_layers(self.transformer.model, layers.modules[-1:])
        if layer is None or not last_layer_works(self.transformer.model, layers, layer, self.pooling_token):
            return None
        return layer

    def pooled_places(self, features: Mapping[str, Any]) -> Tensor | None:
        """Where the pooled rows of a batch are if the prompt is left out of pooling; None: at the first or last token."""
        return pooled_behind_prompt(features, self.pooling, self.pooling_token)


def pooled_behind_prompt(features: Mapping[str, Any], pooling: Pooling, token: PoolingToken) -> Tensor | None:
    """Where the first-token-pooled rows are if the prompt is left out of pooling; None: at their first token.

    The pooling module is asked to pool positions in place of embeddings: what it returns is the row it takes.
    """
    if pooling.include_prompt or "prompt_length" not in features or token != "cls":
        return None
    ids: Tensor = features["input_ids"]
    positions = torch.arange(ids.shape[1], dtype=torch.float32, device=ids.device)
    layout = {name: features[name] for name in _LAYOUT if name in features}
    output = pooling({**layout, "token_embeddings": positions.expand(ids.shape).unsqueeze(-1)})
    pooled: Tensor = output["sentence_embedding"]
    return pooled.squeeze(-1).long()


def reads_pooled_only(modules: Sequence[nn.Module]) -> bool:
    """Whether a pipeline is a transformer, its pooling, and then modules that work on the vector."""
    return (
        len(modules) > 1
        and type(modules[1]) is Pooling
        and all(
            type(module) in (Normalize, LayerNorm, Dropout)
            or (type(module) is Dense and getattr(module, "module_input_name", "") == "sentence_embedding")
            for module in modules[2:]
        )
    )


def _plain_sentence_transformer(model: object) -> SentenceTransformer:
    if isinstance(model, SentenceTransformer) and plain_class_of(model) is SentenceTransformer:
        return model
    name = type(model).__name__
    if isinstance(model, SentenceTransformer):
        raise TypeError(
            f"{name} cannot be calibrated: it is a subclass of SentenceTransformer with code of its own. "
            "If it encodes as its base class does, calibrate SentenceTransformer(modules=list(model))."
        )
    if type(model).__module__.startswith("sentence_transformers."):
        raise TypeError(
            f"{name} cannot be calibrated: sparse, multi-vector and cross encoders do not read a vector from one "
            "pooling token. Calibration is for a SentenceTransformer with 'cls', 'lasttoken' or 'mean' pooling."
        )
    if isinstance(model, nn.Module):
        raise TypeError(
            f"{name} is not a SentenceTransformer. For a plain transformers model use "
            "`with evenspan.calibrated(model, pooling='cls', 'last' or 'mean'):`."
        )
    raise TypeError(f"Expected a SentenceTransformer, not {name}; load one with evenspan.load(path_or_name).")


def query_route(model: SentenceTransformer) -> str | None:
    """The route of a Router model that a bare `encode` takes, if it is not that of documents."""
    router = next(iter(model))
    if isinstance(router, Router) and router.default_route not in (None, "document"):
        return str(router.default_route)
    return None


def document_modules(model: SentenceTransformer) -> list[nn.Module]:
    """The modules a document passes, in order; in a Router model those of its document route."""
    modules = list(model)
    if not modules or not isinstance(modules[0], Router):
        return modules
    routes = modules[0].sub_modules
    if "document" not in routes:
        raise UnsupportedModelError(
            f"This Router model cannot be calibrated: its routes are {sorted(routes)} and none is called 'document'."
        )
    route: Any = routes["document"]
    return [*route, *modules[1:]]
