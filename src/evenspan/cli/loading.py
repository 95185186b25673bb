"""Models for commands."""

from __future__ import annotations

from typing import TYPE_CHECKING

from evenspan.cli.display import quiet_libraries
from evenspan.cli.parsing import BadOptionError

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer


def load_model(name: str, device: str | None = None) -> SentenceTransformer:
    """The model of a name, on a device that is there."""
    from evenspan.models.loading import load

    quiet_libraries()
    check_device(device)
    return load(name, **({} if device is None else {"device": device}))


def check_device(device: str | None) -> None:
    """Refuse a device that PyTorch cannot compute on."""
    if device is None:
        return
    import torch

    try:
        torch.zeros(1, device=device).cpu()
    except Exception as error:  # each kind of device fails in its own way
        reason = str(error).partition("\n")[0].rstrip(".")
        raise BadOptionError(
            f"--device {device}: PyTorch cannot compute there ({reason}). Leave --device out for the best there is, or say cpu."
        ) from error
