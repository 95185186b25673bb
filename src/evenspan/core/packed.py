"""Attention over a batch without padding, by torch's kernel for texts of different lengths: no mask, no wasted work.

transformers knows this layout from FlashAttention: texts stand one behind the other in a batch of one row, and
`cu_seq_lens_q` says where each begins. Attached modules (see `install`) that run on SDPA compute it here.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

_LARGEST_HEAD = 256
_DTYPES = (torch.float16, torch.bfloat16)


def is_packed(query: Tensor, kwargs: Mapping[str, Any]) -> bool:
    """Whether an attention call has the layout of a batch without padding, where torch has a kernel for it."""
    return kwargs.get("cu_seq_lens_q") is not None and query.shape[0] == 1 and runs_on(query.device)


def runs_on(device: torch.device) -> bool:
    """Whether there is a kernel for a device."""
    return device.type == "cuda" and torch.version.hip is None and varlen_kernel() is not None


@functools.cache
def varlen_kernel() -> Callable[..., Any] | None:
    """Torch's attention for texts of different lengths; None where this torch has none."""
    try:
        from torch.nn.attention.varlen import varlen_attn
    except ImportError:
        return None
    return varlen_attn if "window_size" in inspect.signature(varlen_attn).parameters else None


@functools.cache
def _groups_heads() -> bool:
    """Whether the kernel takes fewer heads of keys and values than of queries."""
    kernel = varlen_kernel()
    return kernel is not None and "enable_gqa" in inspect.signature(kernel).parameters


def packed_attention(
    module: nn.Module,
    query: Tensor,  # (1, heads, tokens, head_dim)
    key: Tensor,  # (1, key_value_heads, tokens, head_dim)
    value: Tensor,
    kwargs: Mapping[str, Any],
) -> Tensor:
    """What SDPA would return for every text by itself.  # (1, tokens, heads, head_dim)

    Raises:
        NotImplementedError: if the attention has something in it that the kernel does not know.
    """
    _refuse(query, value, kwargs)
    longest = int(kwargs["max_length_q"])
    window = kwargs.get("sliding_window")
    is_causal = module.is_causal if kwargs.get("is_causal") is None else kwargs["is_causal"]
    # As transformers' FlashAttention has it: the token itself and the window less one on either side.
    reach = window - 1 if window is not None and longest > window else -1
    attended = _varlen(
        *(_by_token(query), _by_token(key), _by_token(value)),
        kwargs["cu_seq_lens_q"].flatten(),
        longest,
        kwargs.get("scaling"),
        (reach, 0 if is_causal else reach),
    )
    return attended.unsqueeze(0)


def _by_token(states: Tensor) -> Tensor:
    """States as the kernel takes them.  # (tokens, heads, head_dim)"""
    by_token = states[0].transpose(0, 1)
    return by_token if by_token.stride(-1) == 1 else by_token.contiguous()


def _refuse(query: Tensor, value: Tensor, kwargs: Mapping[str, Any]) -> None:
    for name in ("softcap", "s_aux", "position_bias"):
        if kwargs.get(name) is not None:
            raise NotImplementedError(f"torch's kernel for batches without padding knows no {name}")
    if query.shape[-1] > _LARGEST_HEAD or value.shape[-1] != query.shape[-1]:
        raise NotImplementedError(f"torch's kernel takes heads of up to {_LARGEST_HEAD}, all of one size")
    if query.device.type == "cuda" and query.dtype not in _DTYPES:
        raise NotImplementedError(f"torch's kernel takes float16 and bfloat16, not {query.dtype}")


def _varlen(
    query: Tensor,  # (tokens, heads, head_dim)
    key: Tensor,
    value: Tensor,
    cumulative: Tensor,
    longest: int,
    scale: float | None,
    window: tuple[int, int],
) -> Tensor:
    """The kernel itself, as this version of torch has it."""
    kernel: Any = varlen_kernel()
    options: dict[str, Any] = {"scale": scale, "window_size": window}
    if query.shape[1] != key.shape[1]:
        if _groups_heads():
            options["enable_gqa"] = True
        else:
            times = query.shape[1] // key.shape[1]
            key, value = key.repeat_interleave(times, dim=1), value.repeat_interleave(times, dim=1)
    attended = kernel(query, key, value, cumulative, cumulative, longest, longest, **options)
    output: Tensor = attended[0] if isinstance(attended, tuple) else attended
    return output
