"""The files of a saved calibrated model: hidden from whoever would load it plain, and shown to those who calibrate it.

Auto classes and servers read a transformer's `config.json` and know nothing of calibration. In a calibrated folder that file
names a model type that nobody knows, and holds the transformer's own config two levels down, where nobody looks: transformers
takes a config of the right type from one level down. An adapter of PEFT has no `config.json`; its `adapter_config.json`, by
which Auto classes would load the base model and the adapter, is kept under another name, so that they find neither.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sentence_transformers.base.modules import Transformer
from torch import nn

from evenspan.calibration import Calibration
from evenspan.models.files import (
    ADAPTER,
    CARD,
    CONFIG,
    HIDDEN_ADAPTER,
    MODULES,
    PLAIN_CARD,
    ROUTER,
    ModelFiles,
    read_json,
)
from evenspan.models.views import Changes

SAVED_CALIBRATION = "evenspan.json"
MODEL_TYPE = "calibrated_load_with_evenspan"  # errors that name it say what to do
_PLAIN_CLASS = f"{Transformer.__module__}.{Transformer.__name__}"
# What saved models call a calibrated module; the second is from before 0.1.0.
CALIBRATED_CLASSES = ("evenspan.models.CalibratedTransformer", "evenspan.modules.CalibratedTransformer")
# What a transformer and its tokenizer save to the folder of the model itself.
_AT_ROOT = (
    CONFIG, "adapter_*", "model*.safetensors*", "pytorch_model*", "sentence_*_config.json", "tokenizer*",
    "special_tokens_map.json", "added_tokens.json", "vocab*", "merges.txt",
)  # fmt: skip
_OLD_NOTE = "> This model carries an [evenspan](https://pypi.org/project/evenspan)"  # in cards from before 0.1.0
_HINT = (
    "This model is calibrated: load it with evenspan.load(...), or with SentenceTransformer(..., trust_remote_code=True) "
    "where evenspan is installed."
)


@contextmanager
def saving_over(folder: Path) -> Iterator[None]:
    """Save a model in the block: afterwards nothing is left of a model that was saved to the folder before."""
    before = _parts(folder)
    yield
    for part in before - _parts(folder):
        shutil.rmtree(folder / part) if (folder / part).is_dir() else (folder / part).unlink(missing_ok=True)


def _parts(folder: Path) -> set[str]:
    """The files and folders that the modules of a saved model take up, by their classes; none if there is no such model."""
    if not folder.is_dir():  # its name is none to look for on the hub
        return set()
    try:
        files = ModelFiles(str(folder), {})
        types = _types(files)
    except (OSError, ValueError):  # nothing, or damaged
        return set()
    parts = {place for place in types if place and (folder / place).is_dir() and not _leads_out(place)}
    at_root = types.get("", "")
    if at_root.endswith(".Router"):
        parts.add(ROUTER)
    elif at_root:
        parts |= {path.name for pattern in _AT_ROOT for path in folder.glob(pattern)}
    if at_root in CALIBRATED_CLASSES:
        parts |= {SAVED_CALIBRATION, HIDDEN_ADAPTER}
    return parts | ({PLAIN_CARD} if set(CALIBRATED_CLASSES).intersection(types.values()) else set())


def make_room(folder: Path, transformer: nn.Module) -> None:
    """Remove what would be mistaken for a part of the transformer that is saved to a folder next."""
    for adapter in getattr(transformer, "peft_config", {}).values():
        if adapter.base_model_name_or_path and Path(adapter.base_model_name_or_path).resolve() == folder.resolve():
            raise ValueError(f"The adapter of this model needs the model in {folder}: save it to another folder.")
    for name in (ADAPTER, HIDDEN_ADAPTER):
        (folder / name).unlink(missing_ok=True)


def hide(folder: Path) -> None:
    """Let nobody load the transformer that was saved to a folder but who knows of its calibration."""
    if (folder / ADAPTER).exists():
        (folder / ADAPTER).replace(folder / HIDDEN_ADAPTER)
        (folder / CONFIG).unlink(missing_ok=True)  # of another model
        return
    config = read_json(folder / CONFIG, dict)
    # A class that is named outright does not look at the type: it stumbles over the size and shows the hint.
    hidden = {"model_type": MODEL_TYPE, "hidden_size": _HINT, "evenspan": {"config": config}}
    (folder / CONFIG).write_text(json.dumps(hidden, indent=2) + "\n", encoding="utf-8")


def write_calibration(folder: Path, calibration: Calibration, default_task: str | None) -> None:
    """Write down what a module is calibrated with."""
    saved = {"calibration": calibration.to_dict(), "default_task": default_task}
    (folder / SAVED_CALIBRATION).write_text(json.dumps(saved, indent=2) + "\n", encoding="utf-8")


def read_calibration(folder: Path) -> tuple[Calibration, str | None]:
    """The calibration and the default task that a module was saved with."""
    path = folder / SAVED_CALIBRATION
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
        raise ValueError(f"{path} contains no readable calibration: {error}") from error


def calibrated_places(files: ModelFiles) -> list[str]:
    """The subfolders of calibrated modules, that of a Router's document route first; none in a plain model."""
    places = [place for place, kind in _types(files).items() if kind in CALIBRATED_CLASSES]
    for place in places:
        if _leads_out(place):
            raise ValueError(f"{files.name} names the folder {place!r} of a module, which is not in the model's own.")
    documents = _router(files).get("structure", {}).get("document", []) if len(places) > 1 else []
    return sorted(places, key=lambda place: place not in documents)


def _types(files: ModelFiles) -> dict[str, str]:
    """The class of each module by its subfolder, those of a Router included."""
    types = {entry["path"]: entry["type"] for entry in files.modules() or []}
    return (
        types | _router(files).get("types", {}) if any(kind.endswith(".Router") for kind in types.values()) else types
    )


def _router(files: ModelFiles) -> dict[str, Any]:
    return files.json(ROUTER, dict) or {}


def _leads_out(place: str) -> bool:
    return Path(place).is_absolute() or ".." in Path(place).parts


def as_plain(folder: Path, places: Iterable[str]) -> Changes:
    """How a folder differs from that of the same model without a calibration; `places` are those of calibrated modules."""
    card = plain_card(folder)
    changes: Changes = {} if card is None else {CARD: card}
    for name in (MODULES, ROUTER):
        if (folder / name).exists():
            text = (folder / name).read_text(encoding="utf-8")
            for calibrated in CALIBRATED_CLASSES:
                text = text.replace(calibrated, _PLAIN_CLASS)
            changes[name] = text
    for place in places:
        adapter, path = (folder / place / name for name in (HIDDEN_ADAPTER, CONFIG))
        config = read_json(path, dict) if path.exists() else {}
        if adapter.exists():
            changes[(Path(place) / ADAPTER).as_posix()] = adapter
        elif config.get("model_type") == MODEL_TYPE:  # else the folder is from before 0.1.0
            try:
                changes[(Path(place) / CONFIG).as_posix()] = json.dumps(config["evenspan"]["config"])
            except (KeyError, TypeError):
                raise ValueError(
                    f"{path} is damaged: it has no evenspan.config. Save or download the model again."
                ) from None
    return changes


def plain_card(folder: Path) -> str | None:
    """The model card that a model would have without its calibration; None if it has none."""
    for name in (PLAIN_CARD, CARD):
        if (folder / name).exists():
            lines = (folder / name).read_text(encoding="utf-8").split("\n")
            return "\n".join(line for line in lines if not line.startswith(_OLD_NOTE))
    return None
