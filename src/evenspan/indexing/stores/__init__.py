"""Where vectors go: one small interface, one file for each kind of store."""

from __future__ import annotations

import os
from pathlib import Path

from evenspan.indexing.stores.base import Hit, Store

__all__ = ["Hit", "Store", "open_store"]

_POSTGRES = ("postgresql://", "postgres://")
PARQUET = "parquet:"
LANCE = "lance:"


def open_store(
    location: str | os.PathLike[str], *, write: bool = False, replace: bool = False, table: str | None = None
) -> Store:
    """The store at a location: `postgresql://…`, `parquet:FOLDER`, `lance:FOLDER`, or a folder, which is LanceDB's.

    A folder that holds an index is opened as what it is, and one whose name ends in `.parquet` is made of Parquet files.
    """
    text = os.fspath(location)
    if text.startswith(("postgresql+", "postgres+")):  # as SQLAlchemy writes it
        text = "postgresql" + text[text.index("://") :]
    if text.startswith(_POSTGRES):
        from evenspan.indexing.stores.postgres import PostgresStore

        return PostgresStore(text, table or "evenspan", write=write, replace=replace)
    if table is not None:
        raise ValueError(f"table={table!r} is for PostgreSQL, whose address begins with postgresql://.")
    kind = next((prefix for prefix in (PARQUET, LANCE) if text.startswith(prefix)), None)
    folder = Path(text.removeprefix(kind or ""))
    if "://" in text:
        kind_of_address = text.partition("://")[0]  # and no more of it: it may hold a password
        raise ValueError(
            f"There is no store for {kind_of_address}://…: use a folder, parquet:FOLDER, or postgresql://…."
        )
    found = _kind_of(folder, replace=replace)
    if found is not None and kind not in (None, found):
        raise ValueError(f"{folder} holds an index of another kind ({found.rstrip(':')}): use another folder.")
    kind = kind or found or (PARQUET if folder.suffix == ".parquet" else LANCE)
    if kind == PARQUET:
        from evenspan.indexing.stores.parquet import ParquetStore

        return ParquetStore(folder, write=write, replace=replace)
    from evenspan.indexing.stores.lance import LanceStore

    return LanceStore(folder, write=write, replace=replace)


def _kind_of(folder: Path, *, replace: bool) -> str | None:
    from evenspan.indexing.manifest import MANIFEST, Catalogue

    if not (folder / MANIFEST).exists():
        return None
    try:
        catalogue = Catalogue(folder)
        try:
            return {"parquet": PARQUET, "lance": LANCE}.get(catalogue.get("store"))
        finally:
            catalogue.close()
    except RuntimeError:  # damaged
        if replace:
            return None
        raise
