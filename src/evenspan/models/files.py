"""The files of a model, in a folder or on the hub: where they are, what they say, and which of them is damaged."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open

MODULES, CONFIG, ROUTER, CARD = "modules.json", "config.json", "router_config.json", "README.md"
ADAPTER = "adapter_config.json"
# In the folder of a calibrated model: what it would have as ADAPTER and CARD without its calibration.
HIDDEN_ADAPTER, PLAIN_CARD = "evenspan_adapter_config.json", "README_plain_model.md"
_HUB_OPTIONS = ("token", "cache_dir", "revision", "local_files_only")
# Everything a model needs and nothing that runs code or is pickled.
_DOWNLOADED = ["*.json", "*.safetensors", "*.txt", "*.model", "*.jinja", CARD, PLAIN_CARD]
# One of them says what kind of model a folder holds.
_MARKS = (MODULES, CONFIG, ADAPTER)


class ModelFiles:
    """A model's folder, or its name on the hub, from which files are fetched when they are asked for.

    Raises:
        OSError: if there is no model of this name.
    """

    def __init__(self, name: str, options: Mapping[str, Any]) -> None:
        self.name = name
        self.is_local = os.path.isdir(name)
        cache = options.get("cache_folder") or os.getenv("SENTENCE_TRANSFORMERS_HOME")
        self._hub = {name: value for name, value in {**options, "cache_dir": cache}.items() if name in _HUB_OPTIONS}
        self._fetched: dict[str, Path | None] = {}
        if not self.is_local:
            self._find_on_hub()
        elif not any(map(self.path, _MARKS)):
            raise FileNotFoundError(f"The folder {name!r} contains no model: it has no {' or '.join(_MARKS[:2])}.")

    def path(self, file: str) -> Path | None:
        """Where a file is, None if the model has no such file."""
        if file not in self._fetched:
            local = Path(self.name, file)
            self._fetched[file] = (local if local.exists() else None) if self.is_local else self._fetch(file)
        return self._fetched[file]

    def json(self, file: str, kind: type) -> Any:
        """What a JSON file says, None if the model has no such file."""
        path = self.path(file)
        return None if path is None else read_json(path, kind)

    def modules(self) -> list[dict[str, str]] | None:
        """The modules of a SentenceTransformer as `modules.json` lists them, None for a plain transformers model."""
        listed: list[dict[str, str]] | None = self.json(MODULES, list)
        if listed is None:
            return None
        for entry in listed or [{}]:
            named = entry if isinstance(entry, dict) else {}
            missing = [key for key in ("path", "type") if not isinstance(named.get(key), str)]
            if missing:
                raise ValueError(
                    f"{self.path(MODULES)} names a module without {' and '.join(missing)}: save or download the "
                    "model again."
                )
        return listed

    def download(self) -> Path:
        """The folder with all files that the model needs."""
        if self.is_local:
            return Path(self.name)
        from huggingface_hub import snapshot_download

        return Path(snapshot_download(self.name, allow_patterns=_DOWNLOADED, **self._hub))

    def check(self) -> None:
        """Raise an error that names a damaged file, if one is: what loads models does not say which."""
        folder = next(path for path in map(self.path, _MARKS) if path is not None).parent
        for place in dict.fromkeys([folder, *(folder / entry["path"] for entry in self.modules() or [])]):
            for path in sorted(place.glob("*.json")):
                read_json(path, object)
            for path in sorted(place.glob("*.safetensors")):
                try:
                    with safe_open(path, framework="pt"):
                        pass
                except SafetensorError as error:
                    raise OSError(f"{path} is damaged ({error}): save or download the model again.") from error

    def _find_on_hub(self) -> None:
        name = self.name
        # As sentence-transformers completes names that have no organisation.
        for candidate in [name] if "/" in name else [name, f"sentence-transformers/{name}"]:
            self.name, self._fetched = candidate, {}
            if any(map(self.path, _MARKS)):
                return
        raise OSError(
            f"Cannot load {name!r}: there is no such folder, and no such model on the hub or in the local cache. Check its "
            "name and the connection. Without a connection, pass the folder of a model that you downloaded elsewhere."
        )

    def _fetch(self, file: str) -> Path | None:
        from huggingface_hub import errors, hf_hub_download

        try:
            return Path(hf_hub_download(self.name, file, **self._hub))
        except errors.HFValidationError:
            raise FileNotFoundError(f"{self.name!r} is neither a model folder nor a name on the hub.") from None
        except errors.LocalEntryNotFoundError:
            self._hub["local_files_only"] = True  # without a connection, ask once and not for every file
            return None
        except (errors.EntryNotFoundError, errors.RepositoryNotFoundError):
            return None


def read_json(path: Path, kind: type) -> Any:
    """What a JSON file holds; raises a `ValueError` that names the file if it is damaged or holds another kind of value."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:  # broken JSON or broken UTF-8
        raise ValueError(f"{path} is damaged ({error}): save or download the model again.") from error
    if not isinstance(value, kind):
        wanted = "a list" if kind is list else "an object"
        raise ValueError(
            f"{path} is damaged: it should hold {wanted}, not {value!r:.40}. Save or download the model again."
        )
    return value
