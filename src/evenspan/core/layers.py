"""Which attention layers of a transformers model can be calibrated, and why others cannot."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from torch import nn
from transformers import PreTrainedModel

from evenspan.calibration import Calibration
from evenspan.core.baskets import PoolingToken
from evenspan.errors import UnsupportedModelError

# Relative-position biases enter the scores without passing through query and key.
_BIASES = ("relative_attention_bias", "has_relative_attention_bias", "relative_position_bias")


@dataclass(frozen=True)
class AttentionLayers:
    """The self-attention modules of a model in the order they are called, and those that see the whole passage."""

    modules: tuple[nn.Module, ...]
    full: tuple[int, ...]
    pooling: PoolingToken

    @property
    def calibratable(self) -> dict[int, nn.Module]:
        """The modules that see the whole passage, by their numbers."""
        return {number: self.modules[number] for number in self.full}

    def chosen_by(self, calibration: Calibration) -> tuple[int, ...]:
        """The numbers of the layers that a calibration changes; raises a `ValueError` if it asks for what is not there."""
        self.refuse_for_mean(calibration)
        if self.pooling == "cls" and calibration.first_token is not None:
            raise ValueError(
                f"first_token={calibration.first_token} has no effect on this model: its pooling token is the first token. "
                "Leave first_token out."
            )
        return calibration.choose_layers(self.full, len(self.modules))

    def refuse_for_mean(self, calibration: Calibration) -> None:
        """Raise a `ValueError` for what a calibration can ask of one pooling token, but not of all tokens."""
        if self.pooling == "mean" and calibration.variant != "soft":
            raise ValueError(
                f"variant={calibration.variant!r} is not for mean pooling: it fixes the share of one pooling token, "
                "and here every token is pooled. Use variant='soft'."
            )
        if self.pooling == "mean" and calibration.first_token is not None:
            raise ValueError(
                f"first_token={calibration.first_token} is not for mean pooling: under 'soft' each row leaves "
                "the first token's mass as it is. Leave first_token out."
            )

    @classmethod
    def of(cls, model: nn.Module, pooling: PoolingToken, max_tokens: int | None = None) -> AttentionLayers:
        """Find the layers, or raise an `UnsupportedModelError` that says why this model cannot be calibrated.

        A layer with a window is as good as one without if the model never reads more than `max_tokens` tokens.
        """
        backbone = _backbone(model)
        name = f"{type(backbone).__name__} ({backbone.config.model_type})"
        modules = tuple(_recorded_attention(backbone, name))
        _refuse_shared(modules, backbone, name)
        for module in modules:
            _refuse_unknown_scores(module, name)
        full = tuple(index for index, module in enumerate(modules) if _sees_all(module, index, max_tokens))
        if not full:
            kinds = sorted(set(getattr(backbone.config, "layer_types", None) or ["sliding_attention"]))
            raise UnsupportedModelError(
                f"{name} cannot be calibrated: none of its layers lets the pooling token see the whole passage, they are "
                f"{', '.join(kinds)}. If a window limits them, set model.max_seq_length to at most the window, or "
                "choose a model with full attention."
            )
        if pooling == "cls" and is_causal(modules[full[0]]):
            raise UnsupportedModelError(
                f"{name} cannot be calibrated with first-token pooling: its attention is causal, so its first token "
                "attends to nothing but itself. Pool the last token instead."
            )
        if pooling == "mean" and is_causal(modules[full[0]]):
            raise UnsupportedModelError(
                f"{name} cannot be calibrated with mean pooling: its attention is causal, so every token sees another part of "
                "the passage and would have baskets of its own. Choose a mean-pooled model with bidirectional attention."
            )
        return cls(modules, full, pooling)


def attention_modules(model: nn.Module) -> dict[int, nn.Module]:
    """All self-attention modules of a model by their numbers; raises as `AttentionLayers.of` does."""
    backbone = _backbone(model)
    return dict(enumerate(_recorded_attention(backbone, type(backbone).__name__)))


def is_causal(module: nn.Module) -> bool:
    """Whether a self-attention module looks backwards only; a config can make a causal architecture bidirectional."""
    config: Any = module.config
    return bool(getattr(module, "is_causal", False)) and getattr(config, "is_causal", True) is not False


def _backbone(model: nn.Module) -> PreTrainedModel:
    """The transformers model itself, out of adapters (PEFT) or task heads around it."""
    inner = [module for module in model.modules() if isinstance(module, PreTrainedModel)]
    if not inner:
        raise TypeError(
            f"{type(model).__name__} cannot be calibrated: it is not a PyTorch model of transformers. ONNX and OpenVINO "
            'models run outside PyTorch: load the model with backend="torch".'
        )
    outer: Any = inner[0].config
    for module in inner:
        _refuse_remote_code(module)
        if getattr(module.config, "is_encoder_decoder", False):
            raise UnsupportedModelError(
                f"{type(module).__name__} cannot be calibrated: it is an encoder-decoder, whose output comes from another "
                "stack than the passage goes into. Use its encoder alone, or another model."
            )
    text = outer.get_text_config()  # of a model with images too, the part that reads text
    for module in inner:
        if module.config is text and "attentions" in (module._can_record_outputs or {}):
            return module
    raise UnsupportedModelError(_not_on_interface(f"{type(inner[0]).__name__} ({inner[0].config.model_type})"))


def _refuse_remote_code(model: PreTrainedModel) -> None:
    if type(model).__module__.split(".")[0] == "transformers_modules":
        raise UnsupportedModelError(
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
                raise UnsupportedModelError(_not_on_interface(name))
            yield module


def _refuse_shared(modules: tuple[nn.Module, ...], backbone: PreTrainedModel, name: str) -> None:
    expected = getattr(backbone.config, "num_hidden_layers", None)
    if len(modules) != expected:
        raise UnsupportedModelError(
            f"{name} cannot be calibrated: it has {len(modules)} self-attention modules for {expected} layers. Layers "
            "that share a module (albert) or have something else than attention (hybrids) are not supported; choose a "
            "model with one self-attention in each layer."
        )


def _refuse_unknown_scores(module: nn.Module, name: str) -> None:
    if hasattr(module, "sinks"):
        raise UnsupportedModelError(
            f"{name} cannot be calibrated: its attention has learned sinks, which take mass that belongs to no token. "
            "Choose a model without attention sinks."
        )
    if any(getattr(module, bias, False) for bias in _BIASES):
        raise UnsupportedModelError(
            f"{name} cannot be calibrated: its attention adds a learned relative-position bias to the scores. "
            "Choose a model with absolute or rotary positions."
        )


def _sees_all(module: nn.Module, index: int, max_tokens: int | None) -> bool:
    """Whether a layer's tokens see the whole passage: it has no window, or one that no passage is longer than."""
    config: Any = module.config
    kinds = getattr(config, "layer_types", None)
    kind = "full_attention" if kinds is None else kinds[index]
    if kind not in ("full_attention", "sliding_attention"):
        return False
    # A layer says so itself, or the config does for all that have no type of their own.
    window = getattr(module, "sliding_window", None)
    if not hasattr(module, "sliding_window") and (kinds is None or kind == "sliding_attention"):
        window = getattr(config, "sliding_window", None)
    if getattr(module, "is_sliding", None) is False:  # exaone4 notes its window in full layers too
        window = None
    if window is None:
        return kind == "full_attention"
    return max_tokens is not None and max_tokens <= window
