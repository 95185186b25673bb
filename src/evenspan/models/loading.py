"""Load a model from a folder or the hub, with the calibration it was saved with."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sentence_transformers import SentenceTransformer

from evenspan.models.devices import check_device
from evenspan.models.files import ADAPTER, CONFIG, MODULES, ModelFiles
from evenspan.models.gte import is_new, native_config
from evenspan.models.modules import calibrate_as_saved
from evenspan.models.saved import as_plain, calibrated_places, read_calibration
from evenspan.models.views import Changes, building, rename, view

MINIATURE = "miniature:"


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
    config = files.json(CONFIG, dict) or {}
    _refuse_other_model_types(name, files.json("config_sentence_transformers.json", dict) or {})
    _refuse_foreign_classes(files, kwargs)
    places = calibrated_places(files)
    if not is_new(config) and not places:
        adapters = [*Path(name).glob(ADAPTER), *Path(name).glob(f"*/{ADAPTER}")]  # their base may be on the hub
        if files.is_local and not adapters:
            kwargs.setdefault("local_files_only", True)  # else the hub is asked for a model of the folder's name
        with building(files, files.name):
            return SentenceTransformer(files.name, **kwargs)
    folder = files.download()
    saved = read_calibration(folder / places[0]) if places else None
    changes: Changes = as_plain(folder, places) if places else {}
    if is_new(config):
        changes[CONFIG] = json.dumps(native_config(config))
        kwargs["trust_remote_code"] = False
    if not any(path.endswith(ADAPTER) for path in changes):  # else there is a base model, which may be on the hub
        kwargs["local_files_only"] = True
    with view(folder, changes) as shown, building(files, str(shown)):
        model = SentenceTransformer(str(shown), **{**kwargs, "revision": None})  # it is resolved, and a folder has none
    rename(model, name)
    if saved is not None:
        calibrate_as_saved(model, *saved)
    return model


def _refuse_foreign_classes(files: ModelFiles, kwargs: Mapping[str, Any]) -> None:
    for entry in files.modules() or []:
        if not kwargs.get("trust_remote_code") and not entry["type"].startswith(
            ("sentence_transformers.", "evenspan.")
        ):
            raise ValueError(
                f"{files.path(MODULES)} names the module class {entry['type']!r}, which is not part of "
                "sentence-transformers: evenspan runs no code of models. Choose a model without code of its own."
            )


def _refuse_other_model_types(name: str, config: Mapping[str, Any]) -> None:
    kind = config.get("model_type", "SentenceTransformer")
    if kind != "SentenceTransformer":
        raise ValueError(
            f"{name} is a {kind}, which does not read its vectors from one pooling token. "
            "evenspan loads SentenceTransformer models."
        )
