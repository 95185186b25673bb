"""Which attention layers of a transformers model can be calibrated, and why others cannot."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from torch import nn
from transformers import PreTrainedModel

from evenspan.baskets import PoolingToken

# Relative-position biases enter the scores without passing through query and key.
_BIASES = ("relative_attention_bias", "has_relative_attention_bias", "relative_position_bias")


@dataclass(frozen=True)
class AttentionLayers:
    """The self-attention modules of a model in the order they are called, and those that see the whole passage."""

    modules: tuple[nn.Module, ...]
    full: tuple[int, ...]

    @classmethod
    def of(cls, model: nn.Module, pooling: PoolingToken) -> AttentionLayers:
        """Find the layers, or raise a `ValueError` that says why this model cannot be calibrated."""
        backbone = _backbone(model)
        name = f"{type(backbone).__name__} ({backbone.config.model_type})"
        modules = tuple(_recorded_attention(backbone, name))
        _refuse_shared(modules, backbone, name)
        for module in modules:
            _refuse_unknown_scores(module, name)
        full = tuple(index for index, module in enumerate(modules) if not _is_local(module, index))
        if not full:
            raise ValueError(
                f"{name} cannot be calibrated: all its layers attend within a sliding window, so its pooling token "
                "never sees the whole passage. If your texts fit the window, load the model with "
                'config_kwargs={"sliding_window": None}.'
            )
        if pooling == "cls" and is_causal(modules[full[0]]):
            raise ValueError(
                f"{name} cannot be calibrated with first-token pooling: its attention is causal, so its first token "
                "attends to nothing but itself. Pool the last token instead."
            )
        return cls(modules, full)


def is_causal(module: nn.Module) -> bool:
    """Whether a self-attention module looks backwards only; a config can make a causal architecture bidirectional."""
    config: Any = module.config
    return bool(getattr(module, "is_causal", False)) and getattr(config, "is_causal", True) is not False


def _backbone(model: nn.Module) -> PreTrainedModel:
    """The transformers model itself, out of adapters (PEFT) or task heads around it."""
    inner = [module for module in model.modules() if isinstance(module, PreTrainedModel)]
    if not inner:
        raise TypeError(
            f"{type(model).__name__} cannot be calibrated: it is no PyTorch model of transformers. ONNX and OpenVINO "
            'models run outside PyTorch: load the model with backend="torch".'
        )
    for module in inner:
        _refuse_remote_code(module)
        if "attentions" in (module._can_record_outputs or {}):
            return module
    raise ValueError(_not_on_interface(f"{type(inner[0]).__name__} ({inner[0].config.model_type})"))


def _refuse_remote_code(model: PreTrainedModel) -> None:
    if type(model).__module__.split(".")[0] == "transformers_modules":
        raise ValueError(
            f"{type(model).__name__} cannot be calibrated: it runs code from its repository, whose attention evenspan "
            "does not know. Load it without trust_remote_code if transformers has the architecture; "
            "gte-multilingual-base loads natively with evenspan.load()."
        )


def _not_on_interface(name: str) -> str:
    return (
        f"{name} cannot be calibrated: this architecture does not run on transformers' AttentionInterface. "
        "Architectures that do include bert, roberta, xlm-roberta, modernbert, gte, qwen3, llama and mistral."
    )


def _recorded_attention(backbone: PreTrainedModel, name: str) -> Iterable[nn.Module]:
    recorded: Any = backbone._can_record_outputs
    recorded = recorded["attentions"]
    entries = recorded if isinstance(recorded, (list, tuple)) else [recorded]
    classes: Any = tuple(getattr(entry, "target_class", entry) for entry in entries)
    for module in backbone.modules():
        if isinstance(module, classes):
            if not hasattr(sys.modules[type(module).__module__], "ALL_ATTENTION_FUNCTIONS") or not hasattr(
                module, "config"
            ):
                raise ValueError(_not_on_interface(name))
            yield module


def _refuse_shared(modules: tuple[nn.Module, ...], backbone: PreTrainedModel, name: str) -> None:
    expected = backbone.config.get_text_config().num_hidden_layers
    if len(modules) != expected:
        raise ValueError(
            f"{name} cannot be calibrated: it has {len(modules)} self-attention modules for {expected} layers. Layers "
            "that share a module, as in albert, cannot be calibrated apart; choose a model without shared layers."
        )


def _refuse_unknown_scores(module: nn.Module, name: str) -> None:
    if hasattr(module, "sinks"):
        raise ValueError(
            f"{name} cannot be calibrated: its attention has learned sinks, which take mass that belongs to no token. "
            "Choose a model without attention sinks."
        )
    if any(getattr(module, bias, False) for bias in _BIASES):
        raise ValueError(
            f"{name} cannot be calibrated: its attention adds a learned relative-position bias to the scores. "
            "Choose a model with absolute or rotary positions."
        )


def _is_local(module: nn.Module, index: int) -> bool:
    """Whether a layer sees a window only: by its own attribute, by the config's list, or by the config as a whole."""
    config: Any = module.config
    kinds = getattr(config, "layer_types", None)
    if kinds is not None and kinds[index] != "full_attention":
        return True
    if hasattr(module, "sliding_window") or kinds is not None:
        return getattr(module, "sliding_window", None) is not None
    return getattr(config, "sliding_window", None) is not None
