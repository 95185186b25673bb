"""Devices by name, checked before any work is done on them."""

from __future__ import annotations

import torch


def check_device(device: str | int | torch.device | None) -> None:
    """Raise a `ValueError` unless tensors can be put on this device; None leaves the choice to sentence-transformers."""
    if device is None:
        return
    try:
        torch.empty(0, device=device)
    except (AssertionError, NotImplementedError, RuntimeError) as error:  # a CPU build asserts
        reason = str(error).partition("\n")[0].removesuffix(".")
        if isinstance(error, NotImplementedError):
            reason = "this PyTorch was built without it"
        elif reason.startswith("Expected one of"):
            reason = "PyTorch knows no such device"
        raise ValueError(
            f"Cannot use device {str(device)!r}: {reason}. Devices here: {', '.join(_devices())}."
        ) from None


def _devices() -> list[str]:
    accelerator = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
    if accelerator is None:
        return ["cpu"]
    return ["cpu", *(f"{accelerator.type}:{number}" for number in range(torch.accelerator.device_count()))]
