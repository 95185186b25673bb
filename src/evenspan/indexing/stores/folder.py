"""What the stores in a folder have in common: the manifest, the lock, starting over."""

from __future__ import annotations

import contextlib
import os
import shutil
import sqlite3
from collections.abc import Sequence
from pathlib import Path

from evenspan.indexing.columns import Columns
from evenspan.indexing.manifest import MANIFEST, Manifest
from evenspan.indexing.settings import IndexSettings
from evenspan.indexing.stores.base import Store

LOCK = "_lock.sqlite"


class FolderStore(Store):
    """An index in a folder, with a `Manifest`."""

    kind: str
    content: tuple[str, ...]  # patterns of what an index of this kind puts into its folder

    def __init__(self, folder: Path, *, write: bool, replace: bool) -> None:
        self.location = str(folder)
        self.folder = folder = Path(os.path.abspath(folder))  # workers may have another working directory
        self._lock: sqlite3.Connection | None = None
        self._made: list[Path] = []  # folders that this run has made, the innermost first
        if write:
            self._made = [parent for parent in (folder, *folder.parents) if not parent.exists()]
            folder.mkdir(parents=True, exist_ok=True)
            self._lock = _lock(folder)
        try:
            if write:
                self._refuse_other_content()
                if replace:
                    self._remove(*self.content, f"{MANIFEST}*")
            self.manifest = Manifest(folder, read_only=not write)
            if write:
                if self.manifest.get("settings") is None:  # a run that died before its first shard
                    self._remove(*self.content)
                self.recover()
        except BaseException:
            self._release()
            raise

    def recover(self) -> None:
        """Bring manifest and content into line after a run that died, or files that were damaged."""
        raise NotImplementedError

    def settings(self) -> IndexSettings | None:  # noqa: D102
        stored = self.manifest.get("settings")
        return None if stored is None else IndexSettings.from_dict(stored)

    def start(self, settings: IndexSettings) -> None:  # noqa: D102
        self.manifest.put(settings=settings.to_dict(), store=self.kind)

    def columns(self) -> Columns:  # noqa: D102
        return dict(self.manifest.get("columns") or {})

    def set_columns(self, columns: Columns) -> None:  # noqa: D102
        if columns != self.columns():
            self.manifest.put(columns=columns)

    def digests(self, names: Sequence[str]) -> list[bytes | None]:  # noqa: D102
        return self.manifest.digests(names)

    def reserve(self) -> int:  # noqa: D102
        self._made = []  # from now on somebody may be writing
        return self.manifest.reserve()

    def count(self) -> int:  # noqa: D102
        return self.manifest.count()

    def rejects_path(self) -> Path:  # noqa: D102
        return self.folder / "_rejects.jsonl"

    def discard(self) -> None:  # noqa: D102
        if not self._made or self.rejects_path().exists():
            return
        self.manifest.close()
        with contextlib.suppress(OSError):  # the error that ended the run is the one to be seen
            self._remove(*self.content, f"{MANIFEST}*", f"{LOCK}*")
            for folder in self._made:
                folder.rmdir()

    def close(self) -> None:  # noqa: D102
        self.manifest.close()
        self._release()

    def _release(self) -> None:
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def _refuse_other_content(self) -> None:
        """Nobody's files are mixed with an index, or removed with it."""
        if (self.folder / MANIFEST).exists():
            return
        others = sorted(path.name for path in self.folder.iterdir() if not path.name.startswith(LOCK))
        if others:
            files = ", ".join(others[:3])
            raise ValueError(f"{self.folder} holds other files ({files}) and no index: use a new folder.")

    def _remove(self, *patterns: str) -> None:
        for pattern in patterns:
            for path in self.folder.glob(pattern):
                if path.is_dir():
                    shutil.rmtree(path)
                else:
                    path.unlink()


def _lock(folder: Path) -> sqlite3.Connection:
    """Keep a second run out of a folder until this is closed; the system lets go of it when the process dies."""
    try:
        database = sqlite3.connect(folder / LOCK, timeout=0, isolation_level=None, check_same_thread=False)
    except sqlite3.Error as error:
        raise OSError(f"Cannot write to {folder}: {error}.") from error
    try:
        database.execute("BEGIN EXCLUSIVE")
    except sqlite3.OperationalError as error:
        database.close()
        if "locked" not in str(error):
            raise OSError(f"Cannot lock {folder}: {error}.") from error
        raise RuntimeError(f"Another run is writing to {folder}: wait for it, or stop it.") from None
    return database
