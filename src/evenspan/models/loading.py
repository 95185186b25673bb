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

from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Transformer

from evenspan.calibration import Calibration
from evenspan.models.calibrating import calibrate
from evenspan.models.gte import is_new, native_config
from evenspan.models.modules import SAVED_CALIBRATION, CalibratedTransformer, without_note

_HUB_OPTIONS = ("token", "cache_folder", "revision", "local_files_only")
# Everything a model needs and nothing that runs code or is pickled.
_DOWNLOADED = ["*.json", "*.safetensors", "*.txt", "*.model", "*.jinja", "README.md"]
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
        path_or_name: a folder, the name of a model on the hub, or `miniature:cls` or `miniature:last`.
        **kwargs: passed on to `SentenceTransformer`.

    Example:
        >>> model = load("BAAI/bge-m3", device="cuda")  # doctest: +SKIP
    """
    name = os.fspath(path_or_name)
    if name.startswith(MINIATURE):
        from evenspan.models.miniatures import miniature

        return miniature(name.removeprefix(MINIATURE), **kwargs)  # type: ignore[arg-type]
    hub = {option: kwargs[option] for option in _HUB_OPTIONS if option in kwargs}
    config = _read_json(name, "config.json", hub)
    _refuse_other_model_types(name, _read_json(name, "config_sentence_transformers.json", hub) or {})
    listed = _read_json(name, "modules.json", hub)
    if config is None and listed is None and "/" in name and not os.path.isdir(name):
        raise OSError(
            f"Cannot load {name!r}: it is neither on the hub, as far as that can be reached, nor in the local cache. "
            "Where there is no connection, download it elsewhere and pass its folder."
        )
    modules = json.dumps(listed)
    if "Router" in modules:
        modules += json.dumps(_read_json(name, _ROUTER, hub))
    needs_native_config, is_calibrated = is_new(config or {}), any(name in modules for name in _CALIBRATED_CLASSES)
    if not needs_native_config and not is_calibrated:
        return SentenceTransformer(name, **kwargs)

    folder = Path(name) if os.path.isdir(name) else _download(name, hub)
    changes: dict[str, Callable[[str], str]] = {}
    if needs_native_config:
        changes["config.json"] = lambda text: json.dumps(native_config(json.loads(text)))
        kwargs["trust_remote_code"] = False
    if is_calibrated:
        for file in ("modules.json", _ROUTER):
            changes[file] = _with_plain_classes
        changes["README.md"] = without_note
    with _view(folder, changes) as view:
        # The revision is resolved by now, and a folder has none.
        local = {**kwargs, "local_files_only": True, "revision": None}
        model = SentenceTransformer(str(view), **local)
    _rename(model, name)
    if is_calibrated:
        calibrate(model, *_saved_calibration(folder))
    return model


def _with_plain_classes(text: str) -> str:
    for name in _CALIBRATED_CLASSES:
        text = text.replace(name, _PLAIN_CLASS)
    return text


def _read_json(name: str, file: str, hub: dict[str, Any]) -> Any:
    """A JSON file of a model, None if it has no such file."""
    path = Path(name, file) if os.path.isdir(name) else _fetch(name, file, hub)
    return _local_json(path) if path is not None and path.exists() else None


def _fetch(name: str, file: str, hub: dict[str, Any]) -> Path | None:
    from huggingface_hub import hf_hub_download
    from huggingface_hub.errors import EntryNotFoundError, LocalEntryNotFoundError, RepositoryNotFoundError

    if name.count("/") > 1 or name.startswith((".", "/", "~")) or "\\" in name:
        raise FileNotFoundError(f"There is no model folder {name!r}, and it is no name on the hub either.")
    try:
        return Path(hf_hub_download(name, file, **_hub_options(hub)))
    except LocalEntryNotFoundError:
        hub["local_files_only"] = True  # without a connection, ask once and not for every file
        return None
    except (EntryNotFoundError, RepositoryNotFoundError):
        return None


def _refuse_other_model_types(name: str, config: Mapping[str, Any]) -> None:
    kind = config.get("model_type", "SentenceTransformer")
    if kind != "SentenceTransformer":
        raise ValueError(
            f"{name} is a {kind}, which does not read its vectors from one pooling token. "
            "evenspan loads SentenceTransformer models."
        )


def _hub_options(hub: Mapping[str, Any]) -> dict[str, Any]:
    return {"cache_dir" if option == "cache_folder" else option: value for option, value in hub.items()}


def _download(name: str, hub: Mapping[str, Any]) -> Path:
    from huggingface_hub import snapshot_download

    return Path(snapshot_download(name, allow_patterns=_DOWNLOADED, **_hub_options(hub)))


def _saved_calibration(folder: Path) -> tuple[Calibration, str | None]:
    """The calibration beside the module that `modules.json`, or the router's config, says is calibrated."""
    places = [
        Path(entry["path"]) for entry in _local_json(folder / "modules.json") if entry["type"] in _CALIBRATED_CLASSES
    ]
    if not places:
        types: dict[str, str] = _local_json(folder / _ROUTER)["types"]
        places = [Path(place) for place, kind in types.items() if kind in _CALIBRATED_CLASSES]
    file = folder / places[0] / SAVED_CALIBRATION
    if not file.exists():
        raise FileNotFoundError(f"{folder} holds a calibrated model but no {file}: save the model again.")
    saved = _local_json(file)
    return Calibration.from_dict(saved["calibration"]), saved["default_task"]


def _local_json(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


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
