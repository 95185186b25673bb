"""Where vectors go: one small interface, one file for each kind of store."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path

from evenspan.errors import require_extra
from evenspan.indexing.manifest import MANIFEST, NEXT, Manifest, is_there
from evenspan.indexing.stores.base import Store

_POSTGRES = ("postgresql://", "postgres://")
# An address with a slash too few, or as `psql` takes it.
_OTHERWISE = re.compile(
    r"postgres(ql)?(\+\w+)?:(?!//)|\s*(host|hostaddr|dbname|password|service)\s*=|\s*\w+\s*=.*\s(host|dbname|password)\s*="
)
_KINDS = ("parquet", "lance")


def locate_store(
    location: str | os.PathLike[str],
    *,
    write: bool = False,
    replace: bool = False,
    recover: bool = True,
    table: str | None = None,
) -> Callable[[], Store]:
    """What opens the store at a location; a location or an installation that cannot be used is an error now.

    There are `postgresql://…`, `parquet:FOLDER`, `lance:FOLDER`, and a folder, which is LanceDB's. A folder that holds
    an index is opened as what it is, and one whose name ends in `.parquet` is made of Parquet files.
    """
    text = os.fspath(location)
    if _OTHERWISE.match(text):  # nothing of it is repeated: it may hold a password
        raise ValueError("This is not a PostgreSQL address: write postgresql://user@host:port/database.")
    if text.startswith(("postgresql+", "postgres+")):  # as SQLAlchemy writes it
        text = "postgresql" + text[text.index("://") :]
    if text.startswith(_POSTGRES):
        require_extra("index", "PostgreSQL", "psycopg", "pgvector", "pyarrow")
        from evenspan.indexing.stores.postgres import PostgresStore

        return partial(PostgresStore, text, table or "evenspan", write=write, replace=replace)
    if table is not None:
        raise ValueError(f"The table {table!r} is for PostgreSQL, whose address begins with postgresql://.")
    if "://" in text:
        scheme = re.match(r"[a-z][a-z0-9+]*(?=://)", text)  # and no more of it: it may hold a password
        advice = "use a folder, parquet:FOLDER, or postgresql://…"
        raise ValueError(f"Unsupported store {'address' if scheme is None else f'{scheme[0]}://…'}: {advice}.")
    kind, folder = _kind_of(text, replace=replace)
    if kind == "parquet":
        require_extra("index", "An index of Parquet files", "pyarrow")
        from evenspan.indexing.stores.parquet import ParquetStore

        return partial(ParquetStore, folder, write=write, replace=replace, recover=recover)
    require_extra("index", "LanceDB", "lancedb", "pyarrow")
    from evenspan.indexing.stores.lance import LanceStore

    return partial(LanceStore, folder, write=write, replace=replace, recover=recover)


def _kind_of(text: str, *, replace: bool) -> tuple[str, Path]:
    """The kind of a store in a folder, and the folder."""
    kind = next((kind for kind in _KINDS if text.startswith(f"{kind}:")), None)
    folder = Path(text if kind is None else text.removeprefix(f"{kind}:")).expanduser()
    stored = None
    for name in (MANIFEST, NEXT):
        if stored is None and is_there(folder, name):
            try:
                with contextlib.closing(Manifest(folder, name)) as manifest:
                    stored = manifest.get("store")
            except (OSError, RuntimeError):  # damaged, or of a run that died in the first moment
                if not replace and name == MANIFEST:
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
