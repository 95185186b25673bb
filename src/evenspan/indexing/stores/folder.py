"""What the stores in a folder have in common: the manifest, the lock, building beside an index that serves."""

from __future__ import annotations

import contextlib
import os
import shutil
import sqlite3
import uuid
from abc import abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from evenspan.indexing.columns import Columns
from evenspan.indexing.ids import SeenIds
from evenspan.indexing.manifest import MANIFEST, NEXT, Manifest, TakenOverError, is_there, new_generation
from evenspan.indexing.settings import IndexSettings
from evenspan.indexing.stores.base import Store

LOCK = "_lock.sqlite"


class FolderStore(Store):
    """An index in a folder, with a `Manifest`; one that is to replace it has another manifest until it is whole."""

    kind: str
    content: tuple[str, ...]  # patterns of what an index of this kind puts into its folder

    def __init__(self, folder: Path, *, write: bool, replace: bool, recover: bool = True) -> None:
        self.location = str(folder)
        self.folder = folder = Path(os.path.abspath(folder))  # workers may have another working directory
        self._beside, self._token = replace, uuid.uuid4().hex
        self._lock: sqlite3.Connection | None = None
        self._made: list[Path] = []  # folders that this run has made, the innermost first
        if write:
            self._made = [parent for parent in (folder, *folder.parents) if not parent.exists()]
            folder.mkdir(parents=True, exist_ok=True)
            self._lock = _lock(folder)
        try:
            if write:
                self._refuse_other_content()
            self._open(write=write)
            if write:
                self._sweep()
                if recover:
                    self.recover()
        except BaseException:
            self._release()
            raise

    def _open(self, *, write: bool) -> None:
        try:
            self.manifest = Manifest(self.folder, NEXT if self._beside else MANIFEST, write=write)
        except RuntimeError:  # damaged, and nobody needs what was not finished
            if not self._beside:
                raise
            self._remove(f"{NEXT}*")
            self.manifest = Manifest(self.folder, NEXT, write=write)
        if write:
            self.manifest.take(self._token)
            self._with_other(lambda other: other.take(self._token))
        self.generation = self.manifest.get("generation") or ""

    @abstractmethod
    def recover(self) -> None:
        """Bring manifest and content into line after a run that died, as far as that is cheap."""

    @abstractmethod
    def tidy(self) -> None:
        """Put the content in order after the last commit."""

    @abstractmethod
    def names(self, manifest: Manifest) -> set[str]:
        """The files and folders that a manifest names."""

    def settings(self) -> IndexSettings | None:  # noqa: D102
        stored = self.manifest.get("settings")
        return None if stored is None else IndexSettings.from_dict(stored)

    def start(self, settings: IndexSettings) -> None:  # noqa: D102
        if self.settings() is not None:  # of an unfinished run with other settings
            self.manifest.close()
            self._remove(f"{NEXT}*")
            self._open(write=True)
            self._sweep()
        self.generation = new_generation()
        more = self.create(settings)
        self.manifest.put(settings=settings.to_dict(), store=self.kind, generation=self.generation, **more)

    def create(self, settings: IndexSettings) -> dict[str, Any]:  # noqa: ARG002
        """Make what a new index needs besides; returns what the manifest must know of it."""
        return {}

    def change_vector_index(self, settings: IndexSettings) -> None:  # noqa: D102
        self.manifest.put(settings=settings.to_dict())

    def columns(self) -> Columns:  # noqa: D102
        return dict(self.manifest.get("columns") or {})

    def set_columns(self, columns: Columns) -> None:  # noqa: D102
        there = self.columns()
        if added := {name: kind for name, kind in columns.items() if name not in there}:
            self.manifest.put(columns={**there, **added})

    def digests(self, names: Sequence[str]) -> list[bytes | None]:  # noqa: D102
        return self.manifest.digests(names)

    def reserve(self) -> int:  # noqa: D102
        self._made = []  # from now on somebody may be writing
        return self.manifest.reserve()

    def count(self) -> int:  # noqa: D102
        return self.manifest.count()

    def delete(self, names: Sequence[str]) -> int:  # noqa: D102
        return self._outdate(self.manifest.delete(names))

    def prune(self, seen: SeenIds) -> int:  # noqa: D102
        return self._outdate(self.manifest.prune(seen))

    def _outdate(self, keys: Sequence[int]) -> int:
        """Rows with these keys count no more; returns how many that are."""
        return len(keys)

    def finish(self) -> None:  # noqa: D102
        self.tidy()
        if self._beside:
            self._take_the_place()

    def _take_the_place(self) -> None:
        """Become the index of this folder, in one step; what was there goes afterwards."""
        self.manifest.close()
        # Which also takes back what a process that died has left half done.
        self._with_other(lambda served: served.check(self._token))
        for ending in ("-journal", "-wal", "-shm"):  # nor may SQLite take that for the new one's
            (self.folder / f"{MANIFEST}{ending}").unlink(missing_ok=True)
        (self.folder / NEXT).replace(self.folder / MANIFEST)
        sync_folder(self.folder)
        self._beside = False
        self._open(write=True)
        self._sweep()

    def replaced(self) -> bool:  # noqa: D102
        return self.manifest.replaced

    def rejects_path(self) -> Path:  # noqa: D102
        return self.folder / "_rejects.jsonl"

    def check_run(self) -> None:  # noqa: D102
        try:
            self.manifest.check(self._token)
        except TakenOverError:
            raise
        except (OSError, RuntimeError):  # closed or damaged: the error that ended the run is the one to be seen
            return

    def discard(self) -> None:  # noqa: D102
        with contextlib.suppress(OSError, RuntimeError):  # the error that ended the run is the one to be seen
            if self._made and not self.rejects_path().exists():
                self.manifest.close()
                self._remove(*self.content, f"{MANIFEST}*", f"{NEXT}*", f"{LOCK}*")
                for folder in self._made:
                    folder.rmdir()
            elif self._beside and not self.manifest.count():
                self.manifest.close()
                self._remove(f"{NEXT}*")

    def close(self) -> None:  # noqa: D102
        self.manifest.close()
        self._release()

    def _release(self) -> None:
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def _refuse_other_content(self) -> None:
        """Nobody's files are mixed with an index, or removed with it."""
        if (self.folder / MANIFEST).exists() or (self.folder / NEXT).exists():
            return
        others = sorted(path.name for path in self.folder.iterdir() if not path.name.startswith(LOCK))
        if others:
            files = ", ".join(others[:3])
            raise ValueError(f"{self.folder} contains other files ({files}) and no index: use a new folder.")

    def _sweep(self) -> None:
        """Remove what neither the index names nor what is built beside it."""
        named = self.names(self.manifest)
        if not self._with_other(lambda other: named.update(self.names(other))):
            return  # what a damaged one named is not known
        for path in [path for pattern in self.content for path in self.folder.glob(pattern)]:
            if path.name not in named:
                _remove(path)

    def _with_other(self, action: Callable[[Manifest], None]) -> bool:
        """Do something with the manifest beside this one, if it is there; whether it is not damaged."""
        name = MANIFEST if self._beside else NEXT
        if is_there(self.folder, name):
            try:
                other = Manifest(self.folder, name)
            except (RuntimeError, ValueError):
                return False
            with contextlib.closing(other):
                action(other)
        return True

    def _remove(self, *patterns: str) -> None:
        for path in [path for pattern in patterns for path in self.folder.glob(pattern)]:
            _remove(path)


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def sync_folder(folder: Path) -> None:
    """Have a folder's entries on the disk, where the system can do that."""
    try:
        descriptor = os.open(folder, os.O_RDONLY)
    except OSError:  # Windows
        return
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


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
