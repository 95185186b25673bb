"""What is done to an index besides adding to it: documents removed, everything read and compared."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from json import dumps

from evenspan.formatting import counted
from evenspan.indexing.filters import parse
from evenspan.indexing.stores import locate_store
from evenspan.indexing.stores.base import Store


@dataclass(frozen=True)
class Verification:
    """What reading everything has shown; `problems` are sentences."""

    store: str
    total: int
    problems: tuple[str, ...]
    repaired: bool

    def to_json(self) -> str:
        """Everything as a JSON object."""
        return dumps(asdict(self), indent=2)

    def __str__(self) -> str:
        if not self.problems:
            return f"{self.store}: {counted(self.total, 'document')}, no damage"
        dropped = "lost documents were dropped: run the command that built the index again"
        way_out = dropped if self.repaired else "see --repair"
        return "\n".join(
            [
                f"{self.store}: {counted(self.total, 'document')}",
                *(f"  {problem}" for problem in self.problems),
                f"  {way_out}",
            ]
        )


def delete_documents(
    store: str | os.PathLike[str],
    ids: Iterable[str] | None = None,
    *,
    where: str | None = None,
    table: str | None = None,
) -> int:
    """Remove documents from an index, by their ids or by a filter on metadata; returns how many there were."""
    if (ids is None) == (where is None):
        raise ValueError("Give either ids or a filter for the documents to remove.")
    if isinstance(ids, str):
        raise TypeError(f"ids must be a list, such as [{ids!r}], not {ids!r}.")
    with contextlib.closing(_there(store, table)) as there:
        expression = None if where is None else parse(where, there.columns())
    with contextlib.closing(locate_store(store, write=True, table=table)()) as opened:
        names = [str(name) for name in ids or ()]
        count = opened.delete(names) if expression is None else opened.delete_where(expression)
        opened.finish()
    return count


def verify_index(store: str | os.PathLike[str], *, repair: bool = False, table: str | None = None) -> Verification:
    """Read an index in full: every file, every row.

    Args:
        store: what `index` was given as its store.
        repair: whether to forget documents that cannot be read: the next run encodes them again.
        table: in PostgreSQL.
    """
    _there(store, table).close()
    with contextlib.closing(locate_store(store, write=True, table=table, recover=False)()) as opened:
        problems = tuple(opened.verify(repair=repair))
        return Verification(opened.location, opened.count(), problems, repaired=repair and bool(problems))


def _there(store: str | os.PathLike[str], table: str | None) -> Store:
    """An index that was made before."""
    opened = locate_store(store, table=table)()
    if opened.settings() is None:
        opened.close()
        raise ValueError(f"No index found in {opened.location}. Build one with `evenspan index`.")
    return opened
