"""Native configs for checkpoints of `model_type: "new"`, such as gte-multilingual-base, without their remote code.

These checkpoints are published with code that breaks on transformers 5. transformers has the architecture as `gte`,
including the conversion of the packed weights; only the config must be told in its words.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

# What the native architecture cannot express, and the one value at which it need not.
_REQUIRED = {
    "position_embedding_type": "rope",
    "layer_norm_type": "layer_norm",
    "pack_qkv": True,
    "logn_attention_scale": False,
}
# Settings of the remote code that have no meaning for the native model.
_DROPPED = {"auto_map", "architectures", "use_memory_efficient_attention", "unpad_inputs", "logn_attention_clip1"}


def is_new(config: Mapping[str, Any]) -> bool:
    """Whether a checkpoint's config.json is in the published layout of gte-multilingual-base."""
    return config.get("model_type") == "new"


def native_config(config: Mapping[str, Any]) -> dict[str, Any]:
    """The config.json of the same model as native `gte`.

    NTK scaling by a factor f with base θ and head size d is the same as base θ·f with positions divided by f^(2/d).

    Raises:
        ValueError: if the checkpoint uses something that the native model does not have.
        ImportError: if the installed transformers has no `gte`.
    """
    import transformers

    if not hasattr(transformers, "GteConfig"):
        raise ImportError(
            f"Checkpoints of model_type 'new' load natively with transformers >= 5.18, and {transformers.__version__} "
            "is installed. Upgrade with: pip install -U transformers"
        )
    for name, required in _REQUIRED.items():
        if config.get(name, required) != required:
            raise ValueError(
                f"Cannot load this 'new' checkpoint natively: {name} is {config[name]!r}, not {required!r}."
            )
    theta = float(config["rope_theta"])
    rope = {"rope_type": "default", "rope_theta": theta}
    scaling = config.get("rope_scaling")
    if scaling:
        kind = scaling.get("type", scaling.get("rope_type"))
        if kind != "ntk" or scaling.get("mixed_b") is not None:
            raise ValueError(f"Cannot load this 'new' checkpoint natively: unknown rope scaling {dict(scaling)}.")
        factor = float(scaling["factor"])
        head_size = config["hidden_size"] // config["num_attention_heads"]
        rope = {"rope_type": "linear", "rope_theta": theta * factor, "factor": factor ** (2 / head_size)}
    kept = {name: value for name, value in config.items() if name not in {*_REQUIRED, *_DROPPED}}
    for name in ("rope_theta", "rope_scaling"):
        kept.pop(name, None)
    return {**kept, "model_type": "gte", "architectures": ["GteModel"], "rope_parameters": rope}
