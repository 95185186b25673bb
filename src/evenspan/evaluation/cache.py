"""Vectors on disk, so that an interrupted run goes on where it stopped.

A folder per setting, named by a digest of everything that the vectors depend on; in it a folder per collection, and in
that files of a few hundred texts each. A file is there whole or not at all.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import threading
import time
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

_LEFT = 3600  # seconds after which nobody is still writing a file


def text_key(text: str) -> str:
    """A digest of a text."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def write_whole(path: Path, content: bytes) -> None:
    """Write a file to one side, then rename it: it is there whole or not at all."""
    temporary = path.with_name(f"{path.name}.{os.getpid()}-{threading.get_ident()}.tmp")
    try:
        temporary.write_bytes(content)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)  # of a disk that is full


class VectorCache:
    """The vectors of texts under one setting; without a folder they are kept in memory.

    `part` names a collection: a run reads the files of the collections that it needs and no others.
    """

    def __init__(self, folder: Path | None, setting: Mapping[str, Any], part: str = "") -> None:
        self._vectors: dict[str, NDArray[np.float32]] = {}
        self._folder = None
        if folder is not None:
            description = json.dumps(setting, sort_keys=True, indent=2)
            home = folder / hashlib.sha256(description.encode()).hexdigest()[:32]
            self._folder = home / hashlib.sha256(part.encode()).hexdigest()[:16]
            self._folder.mkdir(parents=True, exist_ok=True)
            write_whole(home / "setting.json", description.encode())
            for leftover in self._folder.glob("*.tmp"):  # of a run that was killed, or is writing at this moment
                with contextlib.suppress(FileNotFoundError):
                    if time.time() - leftover.stat().st_mtime > _LEFT:
                        leftover.unlink()
            for file in sorted(self._folder.glob("*.npz")):
                self._read(file)

    def __contains__(self, text: str) -> bool:
        return text_key(text) in self._vectors

    def __getitem__(self, text: str) -> NDArray[np.float32]:
        return self._vectors[text_key(text)]

    def add(self, texts: list[str], vectors: list[NDArray[np.float32]]) -> None:
        """Store the vectors of some texts, all or none."""
        keys = [text_key(text) for text in texts]
        if self._folder is not None:
            name = hashlib.sha256("".join(keys).encode()).hexdigest()[:32]
            buffer = io.BytesIO()
            counts = np.array([len(of_text) for of_text in vectors])
            np.savez(buffer, keys=np.array(keys), counts=counts, vectors=np.concatenate(vectors))
            write_whole(self._folder / f"{name}.npz", buffer.getvalue())
        self._vectors.update(zip(keys, vectors, strict=True))

    def _read(self, file: Path) -> None:
        try:
            with file.open("rb") as opened, np.load(opened, allow_pickle=False) as stored:
                keys, counts, vectors = stored["keys"], stored["counts"], stored["vectors"]
        except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
            file.unlink()  # damaged: what it held is computed again
            return
        for key, part in zip(keys.tolist(), np.split(vectors, np.cumsum(counts)[:-1]), strict=True):
            self._vectors[key] = part
