"""Load a model from a temporary folder that shows its files otherwise than they are, and let nobody notice."""

from __future__ import annotations

import shutil
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import torch
from safetensors import SafetensorError
from sentence_transformers.base.modules import Transformer
from torch import nn

from evenspan.models.files import ModelFiles

# What files of a folder, by their relative paths, are to be: a text, another file, or None for not there.
Changes = dict[str, str | Path | None]
_BUILDING = threading.RLock()


@contextmanager
def view(folder: Path, changes: Mapping[str, str | Path | None]) -> Iterator[Path]:
    """A temporary folder with the same files, a few of them changed: Auto classes must not see the originals."""
    sources = {source.relative_to(folder).as_posix(): source for source in folder.rglob("*") if not source.is_dir()}
    with tempfile.TemporaryDirectory(prefix="evenspan-") as temporary:
        shown = Path(temporary) / folder.resolve().name
        for name, content in {**sources, **changes}.items():
            target = shown / name
            target.parent.mkdir(parents=True, exist_ok=True)
            if isinstance(content, str):
                target.write_text(content, encoding="utf-8")
            elif content is not None:
                _link(target, content)
        yield shown


def _link(target: Path, source: Path) -> None:
    try:
        target.symlink_to(source.resolve())
    except OSError:  # file systems and platforms without links
        shutil.copyfile(source, target)


@contextmanager
def building(files: ModelFiles, shown: str) -> Iterator[None]:
    """Build a model, from a folder or name that may stand in for the model's own; errors name the latter."""
    try:
        # Weights that a checkpoint lacks (poolers that nobody reads) are made up: always the same, for the sake of digests.
        with _BUILDING, torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(0)
            yield
    except (AttributeError, IndexError, KeyError, OSError, SafetensorError, TypeError, ValueError) as error:
        files.check()
        reason = str(error).replace(shown, files.name)  # nobody knows a temporary folder
        if files.name in reason and isinstance(error, (OSError, ValueError)):
            raise type(error)(reason) from error
        raise OSError(f"Cannot load {files.name!r}: {reason}") from error


def rename(model: nn.Module, name: str) -> None:
    """Let a model report where it came from, not the temporary folder."""
    for module in model.modules():
        if isinstance(module, Transformer):
            module.model.config._name_or_path = name
            module.model.name_or_path = name
            if module.tokenizer is not None:
                module.tokenizer.name_or_path = name
