"""Models for commands."""

import os
import sys
from typing import TYPE_CHECKING, Any

from evenspan.cli.parsing import BadOptionError

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer


def load_model(name: str, device: str | None = None) -> "SentenceTransformer":
    """The model of a name, on a device that is there."""
    from evenspan.models.loading import load

    quiet_libraries()
    check_device(device)
    return load(name, device=device)


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


def quiet_libraries() -> None:
    """Silence the load reports and bars of other libraries, which would drown a command's own output."""
    os.environ.setdefault("HF_DATASETS_DISABLE_PROGRESS_BARS", "1")
    from huggingface_hub.utils import logging as hub
    from huggingface_hub.utils.tqdm import disable_progress_bars
    from transformers.utils import logging as transformers

    for log in (hub, transformers):
        silence: Any = log
        silence.set_verbosity_error()
    silence.disable_progress_bar()
    if not sys.stderr.isatty():
        disable_progress_bars()
