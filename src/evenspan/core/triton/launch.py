"""Launch a Triton kernel again without Triton's look at every argument, which takes longer than the launch itself."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

# What Triton compiles a kernel for: dtypes, strides, constants, and which tensors begin at multiples of 16 bytes.
_compiled: dict[tuple[Any, ...], Any] = {}
_MOST = 512


def launch_key(
    kernel: Any, tensors: tuple[Tensor, ...], strides: tuple[int, ...], constants: tuple[Any, ...]
) -> tuple[Any, ...]:
    """What a kernel is compiled for, no more and no less: it must not grow with the lengths of texts."""
    seen = tuple((tensor.dtype, tensor.data_ptr() % 16 == 0) for tensor in tensors)
    kinds = tuple((stride == 1, stride % 16 == 0, stride >= 1 << 31) for stride in strides)
    return kernel, tensors[0].device.index, seen, kinds, constants


def compiled_kernels() -> int:
    """How many kernels were compiled, or found in Triton's cache, by this process."""
    return len({id(compiled) for compiled in _compiled.values()})


def relaunch(
    kernel: Any,
    grid: tuple[int, int, int],
    tensors: tuple[Tensor, ...],
    strides: tuple[int, ...],
    numbers: tuple[float, ...],
    constants: tuple[Any, ...],
    **options: int,
) -> None:
    """Launch `kernel(*tensors, *strides, *numbers, *constants)`, built with Triton's options (`num_warps`, `num_stages`).

    The kernel must not be compiled for the values of `numbers` (floats, or integers it names in `do_not_specialize`).
    """
    arguments = (*tensors, *strides, *numbers, *constants)
    device = tensors[0].device
    if device.type == "cuda" and device.index != torch.cuda.current_device():
        with torch.cuda.device(device):  # Triton launches on the current device, whatever its tensors are on
            relaunch(kernel, grid, tensors, strides, numbers, constants, **options)
        return
    if torch.version.hip is not None:  # whose kernels are compiled for the size of tensors as well
        kernel[grid](*arguments, **options)
        return
    key = (*launch_key(kernel, tensors, strides, constants), *options.values())
    compiled = _compiled.get(key)
    if compiled is not None:
        compiled[grid](*arguments)
        return
    compiled = kernel[grid](*arguments, **options)
    if compiled is not None:  # the interpreter compiles nothing
        if len(_compiled) >= _MOST:
            _compiled.clear()
        _compiled[key] = compiled
