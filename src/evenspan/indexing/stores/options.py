"""How a store keeps vectors and how its own index is built: what is left out is as the store chooses."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

INDEXES = {
    "lance": ("ivf-flat", "ivf-sq", "ivf-pq", "hnsw", "hnsw-sq", "hnsw-pq", "none"),
    "postgres": ("hnsw", "ivf-flat", "none"),
    "parquet": ("none",),
}
VECTORS = ("float32", "float16")
_KINDS = ("auto", *dict.fromkeys(kind for kinds in INDEXES.values() for kind in kinds))
_GRAPH, _LISTS = ("m", "ef_construction", "ef_search"), ("lists", "probes")
_BOUNDS = {
    "lists": (1, 65_536),
    "probes": (1, 65_536),
    "m": (2, 100),
    "ef_construction": (4, 1000),
    "ef_search": (1, 1000),
}


@dataclass(frozen=True)
class StoreOptions:
    """Options of a store, as in `"hnsw,m=24,ef_construction=128,vectors=float16"`.

    Args:
        index: `"auto"`: the store's usual; `"hnsw"`, `"ivf-flat"`; in LanceDB also `"ivf-sq"`, `"ivf-pq"`, `"hnsw-sq"`,
            `"hnsw-pq"`, which look at quantised vectors first; `"none"`: exact scans.
        vectors: `"float32"`, or `"float16"`: half the bytes.
        lists: into how many parts vectors are told (IVF).
        probes: how many of them a search looks into.
        m: neighbours of a vector in the graph (HNSW).
        ef_construction: candidates while the graph is built.
        ef_search: candidates of a search, at least.
    """

    index: str = "auto"
    vectors: str = "float32"
    lists: int | None = None
    probes: int | None = None
    m: int | None = None
    ef_construction: int | None = None
    ef_search: int | None = None

    def __post_init__(self) -> None:
        if self.index not in _KINDS:
            raise ValueError(f"index must be one of {', '.join(_KINDS)}, not {self.index!r}.")
        if self.vectors not in VECTORS:
            raise ValueError(f"vectors must be {' or '.join(VECTORS)}, not {self.vectors!r}.")
        for name, (least, most) in _BOUNDS.items():
            value = getattr(self, name)
            if value is not None and (type(value) is not int or not least <= value <= most):
                raise ValueError(f"{name} must be a whole number from {least} to {most:,}, not {value!r}.")
        if self.m is not None and self.ef_construction is not None and self.ef_construction < 2 * self.m:
            raise ValueError(f"ef_construction must be at least twice m, {2 * self.m}, not {self.ef_construction}.")

    def __str__(self) -> str:
        more = [f"{each.name}={getattr(self, each.name)}" for each in fields(self)[1:] if self._says(each)]
        return ",".join([self.index, *more])

    def _says(self, field: Any) -> bool:
        return bool(getattr(self, field.name) != field.default)

    @classmethod
    def parse(cls, text: str) -> StoreOptions:
        """Read what `str()` writes; the kind of index may be left out.

        Example:
            >>> str(StoreOptions.parse("hnsw,m=24"))
            'hnsw,m=24'
        """
        values: dict[str, Any] = {}
        for number, part in enumerate(text.split(",")):
            name, given, value = (word.strip() for word in part.partition("="))
            if not given and number == 0:
                name, value = "index", name
            if name not in {each.name for each in fields(cls)} or name in values or not value:
                raise ValueError(f"Cannot read {part!r} in the options {text!r}: write hnsw,m=24,vectors=float16.")
            values[name] = int(value) if name in _BOUNDS and value.isdecimal() else value
        return cls(**values)

    def check(self, kind: str, location: str) -> None:
        """Refuse what a kind of store does not have."""
        known = INDEXES[kind]
        if self.index not in ("auto", *known):
            raise ValueError(f"{location} has no index type {self.index!r}. Available: {', '.join(known)}.")
        index = known[0] if self.index == "auto" else self.index
        for name in (*_GRAPH, *_LISTS):
            fitting = _GRAPH if index.startswith("hnsw") else _LISTS if index.startswith("ivf") else ()
            # LanceDB keeps a graph in each part.
            fits = name in fitting or (kind == "lance" and index.startswith("hnsw") and name in _LISTS)
            if getattr(self, name) is not None and not fits:
                raise ValueError(f"{name} is not an option of the index {index!r} of {location}.")
