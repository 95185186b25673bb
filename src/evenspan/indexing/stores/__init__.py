"""Where vectors go: one small interface, one file for each kind of store."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path

from evenspan.errors import require_extra
from evenspan.indexing.manifest import MANIFEST, Manifest
from evenspan.indexing.stores.base import Store

_POSTGRES = ("postgresql://", "postgres://")
_KINDS = ("parquet", "lance")


def locate_store(
    location: str | os.PathLike[str], *, write: bool = False, replace: bool = False, table: str | None = None
) -> Callable[[], Store]:
    """What opens the store at a location; a location or an installation that cannot be used is an error now.

    There are `postgresql://…`, `parquet:FOLDER`, `lance:FOLDER`, and a folder, which is LanceDB's. A folder that holds
    an index is opened as what it is, and one whose name ends in `.parquet` is made of Parquet files.
    """
    text = os.fspath(location)
    if text.startswith(("postgresql+", "postgres+")):  # as SQLAlchemy writes it
        text = "postgresql" + text[text.index("://") :]
    if text.startswith(_POSTGRES):
        require_extra("index", "PostgreSQL", "psycopg", "pgvector", "pyarrow")
        from evenspan.indexing.stores.postgres import PostgresStore

        return partial(PostgresStore, text, table or "evenspan", write=write, replace=replace)
    if table is not None:
        raise ValueError(f"The table {table!r} is for PostgreSQL, whose address begins with postgresql://.")
    if "://" in text:
        kind_of_address = text.partition("://")[0]  # and no more of it: it may hold a password
        advice = "use a folder, parquet:FOLDER, or postgresql://…"
        raise ValueError(f"There is no store for {kind_of_address}://…: {advice}.")
    kind, folder = _kind_of(text, replace=replace)
    if kind == "parquet":
        require_extra("index", "An index of Parquet files", "pyarrow")
        from evenspan.indexing.stores.parquet import ParquetStore

        return partial(ParquetStore, folder, write=write, replace=replace)
    require_extra("index", "LanceDB", "lancedb", "pyarrow")
    from evenspan.indexing.stores.lance import LanceStore

    return partial(LanceStore, folder, write=write, replace=replace)


def _kind_of(text: str, *, replace: bool) -> tuple[str, Path]:
    """The kind of a store in a folder, and the folder."""
    kind = next((kind for kind in _KINDS if text.startswith(f"{kind}:")), None)
    folder = Path(text if kind is None else text.removeprefix(f"{kind}:"))
    stored = None
    if (folder / MANIFEST).exists() and (folder / MANIFEST).stat().st_size:
        try:
            with contextlib.closing(Manifest(folder)) as manifest:
                stored = manifest.get("store")
        except RuntimeError:  # damaged
            if not replace:
                raise
    if stored in _KINDS and kind not in (None, stored):
        raise ValueError(f"{folder} holds an index of another kind ({stored}): use another folder.")
    named = "parquet" if folder.suffix == ".parquet" else "lance"
    return kind or (stored if stored in _KINDS else named), folder


def store_kind(location: str | os.PathLike[str]) -> str:
    """The kind of the store at a location that `locate_store` takes: `lance`, `parquet` or `postgres`."""
    text = os.fspath(location)
    if text.startswith(("postgresql", "postgres:")) and "://" in text:
        return "postgres"
    return _kind_of(text, replace=True)[0]
