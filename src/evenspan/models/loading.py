"""Load a model from a folder or the hub, with the calibration it was saved with."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Transformer

from evenspan.calibration import Calibration
from evenspan.models.calibrating import calibrate_as_saved
from evenspan.models.devices import check_device
from evenspan.models.files import ModelFiles, read_json
from evenspan.models.gte import is_new, native_config
from evenspan.models.modules import SAVED_CALIBRATION, CalibratedTransformer, without_note

MINIATURE = "miniature:"
_ROUTER = "router_config.json"
_PLAIN_CLASS = f"{Transformer.__module__}.{Transformer.__name__}"
# What saved models call a calibrated module; the second is from before 0.1.0.
_CALIBRATED_CLASSES = (
    f"{CalibratedTransformer.__module__}.{CalibratedTransformer.__name__}",
    "evenspan.modules.CalibratedTransformer",
)


def load(path_or_name: str | os.PathLike[str], **kwargs: Any) -> SentenceTransformer:
    """Load a `SentenceTransformer` and the calibration that was saved with it, if any.

    Also loads `gte-multilingual-base` and other checkpoints of `model_type: "new"` natively, without remote code.

    Args:
        path_or_name: a folder, the name of a model on the hub, or `miniature:cls`, `:last` or `:mean`.
        **kwargs: passed on to `SentenceTransformer`.

    Raises:
        OSError, ValueError: if there is no such model, a file of it is damaged, or the device cannot be used.

    Example:
        >>> model = load("BAAI/bge-m3", device="cuda")  # doctest: +SKIP
    """
    name = os.fspath(path_or_name)
    check_device(kwargs.get("device"))
    if name.startswith(MINIATURE):
        from evenspan.models.miniatures import miniature

        return miniature(name.removeprefix(MINIATURE), **kwargs)  # type: ignore[arg-type]
    files = ModelFiles(name, kwargs)
    config = files.json("config.json", dict) or {}
    _refuse_other_model_types(name, files.json("config_sentence_transformers.json", dict) or {})
    calibrated_at = _calibrated_module(files)
    if not is_new(config) and calibrated_at is None:
        return _build(files, files.name, kwargs)
    folder = files.download()
    changes: dict[str, Callable[[str], str]] = {}
    if is_new(config):
        changes["config.json"] = lambda text: json.dumps(native_config(json.loads(text)))
        kwargs["trust_remote_code"] = False
    if calibrated_at is not None:
        changes |= {"modules.json": _with_plain_classes, _ROUTER: _with_plain_classes, "README.md": without_note}
    with _view(folder, changes) as view:
        # The revision is resolved by now, and a folder has none.
        model = _build(files, str(view), {**kwargs, "local_files_only": True, "revision": None})
    _rename(model, name)
    if calibrated_at is not None:
        calibrate_as_saved(model, *_saved_calibration(folder / calibrated_at / SAVED_CALIBRATION))
    return model


def _build(files: ModelFiles, name: str, kwargs: dict[str, Any]) -> SentenceTransformer:
    _refuse_foreign_classes(files, kwargs)
    try:
        # Weights that a checkpoint lacks (poolers that nobody reads) are made up: always the same, for the sake of digests.
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(0)
            return SentenceTransformer(name, **kwargs)
    except (AttributeError, IndexError, KeyError, OSError, SafetensorError, TypeError, ValueError) as error:
        files.check()
        reason = str(error).replace(name, files.name)  # nobody knows a temporary folder
        if files.name in reason and isinstance(error, (OSError, ValueError)):
            raise type(error)(reason) from error
        raise OSError(f"Cannot load {files.name!r}: {reason}") from error


def _refuse_foreign_classes(files: ModelFiles, kwargs: Mapping[str, Any]) -> None:
    for entry in files.modules() or []:
        if not kwargs.get("trust_remote_code") and not entry["type"].startswith(
            ("sentence_transformers.", "evenspan.")
        ):
            raise ValueError(
                f"{files.path('modules.json')} names the module class {entry['type']!r}, which is not part of "
                "sentence-transformers: evenspan runs no code of models. Choose a model without code of its own."
            )


def _calibrated_module(files: ModelFiles) -> str | None:
    """The subfolder of the calibrated module, among the modules or in a Router's document route; None in a plain model."""
    places = {entry["path"]: entry["type"] for entry in files.modules() or []}
    if any(kind.endswith(".Router") for kind in places.values()):
        router = files.json(_ROUTER, dict) or {}
        places |= router.get("types", {})
    return next((place for place, kind in places.items() if kind in _CALIBRATED_CLASSES), None)


def _with_plain_classes(text: str) -> str:
    for name in _CALIBRATED_CLASSES:
        text = text.replace(name, _PLAIN_CLASS)
    return text


def _refuse_other_model_types(name: str, config: Mapping[str, Any]) -> None:
    kind = config.get("model_type", "SentenceTransformer")
    if kind != "SentenceTransformer":
        raise ValueError(
            f"{name} is a {kind}, which does not read its vectors from one pooling token. "
            "evenspan loads SentenceTransformer models."
        )


def _saved_calibration(path: Path) -> tuple[Calibration, str | None]:
    if not path.exists():
        raise FileNotFoundError(f"The model is calibrated, but there is no {path}: save it again.")
    saved = read_json(path, dict)
    try:
        if saved["default_task"] not in (None, "document"):
            raise ValueError(f"default_task is {saved['default_task']!r}, not 'document' or null.")
        return Calibration.from_dict(saved["calibration"]), saved["default_task"]
    except KeyError as error:
        raise ValueError(f"{path} has no {error}: save the model again.") from None
    except (TypeError, ValueError) as error:
        raise ValueError(f"{path} holds no calibration that can be read: {error}") from error


@contextmanager
def _view(folder: Path, changes: Mapping[str, Callable[[str], str]]) -> Iterator[Path]:
    """A temporary folder with the same files, a few of them changed: Auto classes must not see the originals."""
    with tempfile.TemporaryDirectory(prefix="evenspan-") as temporary:
        view = Path(temporary) / folder.resolve().name
        for source in folder.rglob("*"):
            target = view / source.relative_to(folder)
            if source.is_dir():
                continue
            target.parent.mkdir(parents=True, exist_ok=True)
            change = changes.get(source.relative_to(folder).as_posix())
            if change is not None:
                target.write_text(change(source.read_text(encoding="utf-8")), encoding="utf-8")
                continue
            try:
                target.symlink_to(source.resolve())
            except OSError:  # file systems and platforms without links
                shutil.copyfile(source, target)
        yield view


def _rename(model: SentenceTransformer, name: str) -> None:
    """Let the model report where it came from, not the temporary folder."""
    for module in model.modules():
        if isinstance(module, Transformer):
            module.model.config._name_or_path = name
            module.model.name_or_path = name
            if module.tokenizer is not None:
                module.tokenizer.name_or_path = name
