"""Models for commands."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from evenspan.cli.output import remarks
from evenspan.cli.parsing import BadOptionError

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer


def load_model(name: str, device: str | None = None) -> "SentenceTransformer":
    """The model of a name, on a device that is there."""
    from evenspan.models.loading import load

    ready(device)
    return load(name, device=device)


def ready(device: str | None = None) -> None:
    """Refuse a device that PyTorch cannot compute on, and silence what would drown a command's own output."""
    import torch
    from huggingface_hub.utils import logging as hub
    from huggingface_hub.utils.tqdm import disable_progress_bars
    from transformers.utils import logging as transformers

    try:
        torch.zeros(1, device=device).cpu()
    except Exception as error:  # each kind of device fails in its own way
        reason = str(error).partition("\n")[0].rstrip(".")
        raise BadOptionError(
            f"--device {device}: PyTorch cannot compute there ({reason}). Leave --device out, or use cpu."
        ) from error
    os.environ.setdefault("HF_DATASETS_DISABLE_PROGRESS_BARS", "1")
    for log in (hub, transformers):
        silence: Any = log
        silence.set_verbosity_error()
    silence.disable_progress_bar()
    if not sys.stderr.isatty():
        disable_progress_bars()


@contextmanager
def in_another_process(device: str | None, *, quiet: bool, debug: bool) -> Iterator[None]:
    """What a command has around it, and `ready`, for the process that it starts."""
    with remarks(quiet=quiet, debug=debug):
        ready(device)
        yield
