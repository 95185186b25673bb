"""Layer families whose structure is known: how to run one layer for the pooled rows alone.

Everything in a transformer layer works row by row except attention, and of that the pooled row needs its own query but
the keys and values of all tokens. A family says which modules make queries, keys and values and what follows attention.
A layer of no family is always run in full.
"""

from __future__ import annotations

import importlib
import sys
from typing import Any

from torch import Tensor, nn


class Bert:
    """Queries, keys and values straight from the hidden states; normalised after attention and after the feed-forward."""

    @staticmethod
    def attention(layer: Any) -> Any:
        """The self-attention module."""
        return layer.attention.self

    @staticmethod
    def attended(_: Any, hidden: Tensor) -> Tensor:
        """What the self-attention module is given."""
        return hidden

    @staticmethod
    def query(attention: Any, rows: Tensor, _: tuple[Tensor, Tensor] | None) -> Tensor:
        """Queries of the given rows.  # (rows, heads, head_dim)"""
        queries: Tensor = attention.query(rows)
        return queries.view(rows.shape[0], -1, attention.attention_head_size)

    @staticmethod
    def keys_and_values(attention: Any, states: Tensor, _: tuple[Tensor, Tensor] | None) -> tuple[Tensor, Tensor]:
        """Keys and values of all tokens.  # (batch, heads, tokens, head_dim)"""
        shape = (*states.shape[:-1], -1, attention.attention_head_size)
        return attention.key(states).view(shape).transpose(1, 2), attention.value(states).view(shape).transpose(1, 2)

    @staticmethod
    def finish(layer: Any, rows: Tensor, outputs: Tensor) -> Tensor:
        """The rest of the layer: from its input rows and their attention outputs to its output rows.  # (rows, width)"""
        finished: Tensor = layer.feed_forward_chunk(layer.attention.output(outputs, rows))
        return finished

    @staticmethod
    def final_norm(_: Any, __: Any) -> nn.Module | None:
        """What follows the last layer of a model: an identity if nothing does, None if that is not known."""
        return nn.Identity()


class Gte:
    """Rotary positions; normalised after attention and after the feed-forward."""

    @staticmethod
    def attention(layer: Any) -> Any:
        return layer.self_attn

    @staticmethod
    def attended(_: Any, hidden: Tensor) -> Tensor:
        return hidden

    @staticmethod
    def query(attention: Any, rows: Tensor, rotation: tuple[Tensor, Tensor] | None) -> Tensor:
        queries = attention.q_proj(rows).view(rows.shape[0], 1, -1, attention.head_dim)
        if hasattr(attention, "q_norm"):
            queries = attention.q_norm(queries)
        return _rotated(attention, queries.transpose(1, 2), rotation).squeeze(2)

    @staticmethod
    def keys_and_values(
        attention: Any, states: Tensor, rotation: tuple[Tensor, Tensor] | None
    ) -> tuple[Tensor, Tensor]:
        shape = (*states.shape[:-1], -1, attention.head_dim)
        keys = attention.k_proj(states).view(shape)
        if hasattr(attention, "k_norm"):
            keys = attention.k_norm(keys)
        values = attention.v_proj(states).view(shape).transpose(1, 2)
        return _rotated(attention, keys.transpose(1, 2), rotation), values

    @staticmethod
    def finish(layer: Any, rows: Tensor, outputs: Tensor) -> Tensor:
        rows = layer.post_attention_layernorm(rows + layer.self_attn.o_proj(outputs))
        finished: Tensor = layer.post_mlp_layernorm(rows + layer.mlp(rows))
        return finished

    @staticmethod
    def final_norm(_: Any, __: Any) -> nn.Module | None:
        return nn.Identity()


class Llama(Gte):
    """Rotary positions; normalised before attention and before the feed-forward."""

    @staticmethod
    def attended(layer: Any, hidden: Tensor) -> Tensor:
        normalised: Tensor = layer.input_layernorm(hidden)
        return normalised

    @staticmethod
    def finish(layer: Any, rows: Tensor, outputs: Tensor) -> Tensor:
        rows = rows + layer.self_attn.o_proj(outputs)
        finished: Tensor = rows + layer.mlp(layer.post_attention_layernorm(rows))
        return finished

    @staticmethod
    def final_norm(model: Any, layer: Any) -> nn.Module | None:
        for module in model.modules():
            layers = getattr(module, "layers", None)
            if isinstance(layers, nn.ModuleList) and len(layers) and layers[-1] is layer:
                norm: nn.Module | None = getattr(module, "norm", None)
                return norm
        return None


Family = type[Bert] | type[Gte]

# Layer classes of transformers: where each is defined and the family it is of.
_FAMILIES: dict[str, tuple[str, Family]] = {
    "BertLayer": ("bert", Bert),
    "CamembertLayer": ("camembert", Bert),
    "EuroBertDecoderLayer": ("eurobert", Llama),
    "GteLayer": ("gte", Gte),
    "LlamaDecoderLayer": ("llama", Llama),
    "MistralDecoderLayer": ("mistral", Llama),
    "Qwen2DecoderLayer": ("qwen2", Llama),
    "Qwen3DecoderLayer": ("qwen3", Llama),
    "RobertaLayer": ("roberta", Bert),
    "XLMRobertaLayer": ("xlm_roberta", Bert),
}


def plain_class_of(module: nn.Module) -> type[nn.Module]:
    """The class that a module has when it is not calibrated: ours name it."""
    plain: type[nn.Module] = getattr(type(module), "plain_class", type(module))
    return plain


def family_of(layer: nn.Module) -> Family | None:
    """The family of a layer, or None where its structure is not known."""
    plain = plain_class_of(layer)
    home, family = _FAMILIES.get(plain.__name__, (None, None))
    return family if plain.__module__ == _module_of(home) else None


def layer_class(name: str) -> type[nn.Module]:
    """The layer class of this name in transformers; raises an `AttributeError` if no family has it."""
    if name not in _FAMILIES:
        raise AttributeError(f"{name} is in no known family of layers.")
    home = importlib.import_module(_module_of(_FAMILIES[name][0]))
    layer: type[nn.Module] = getattr(home, name)
    return layer


def _module_of(home: str | None) -> str:
    return f"transformers.models.{home}.modeling_{home}"


def _rotated(attention: nn.Module, states: Tensor, rotation: tuple[Tensor, Tensor] | None) -> Tensor:
    """What `apply_rotary_pos_emb` does to one of its two tensors.  # (batch, heads, tokens, head_dim)"""
    if rotation is None:
        raise TypeError(f"{type(attention).__name__} is run without rotary positions.")
    rotate_half: Any = sys.modules[type(attention).__module__].rotate_half
    cos, sin = (part.unsqueeze(1) for part in rotation)
    rotated: Tensor = (states * cos) + (rotate_half(states) * sin)
    return rotated
