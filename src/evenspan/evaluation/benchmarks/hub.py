"""Data sets of the hub, or local copies of them in the hub's own layout."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from evenspan.errors import require_extra


def read_split(
    repository: str, split: str, columns: Sequence[str], *, config: str | None = None, path: str | Path | None = None
) -> list[dict[str, Any]]:
    """The rows of one split of a data set, read with `datasets`, which shows its progress.

    `path` is a local copy in the hub's own layout; None to take it from the hub or its cache.
    """
    require_extra("eval", f"The benchmark {repository}", "datasets")
    import datasets

    _check_copy(repository, path)
    try:
        table = datasets.load_dataset(str(path or repository), config, split=split)
    except (ConnectionError, FileNotFoundError, datasets.exceptions.DatasetNotFoundError) as error:
        raise OSError(how_to_provide(repository, path)) from error
    check_known(columns, table.column_names, f"{path or repository}, split {split!r}: column", " is missing")
    return list(table.select_columns(list(columns)).to_list())


def read_parquet(repository: str, file: str, columns: Sequence[str], path: str | Path | None) -> list[dict[str, Any]]:
    """The rows of one Parquet file of a data set, which is downloaded if need be."""
    require_extra("eval", f"The benchmark {repository}", "pyarrow")
    import pyarrow.parquet
    from huggingface_hub import hf_hub_download
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

    _check_copy(repository, path)
    if path is not None and not Path(path, file).is_file():
        raise FileNotFoundError(f"The copy of {repository} at {path} has no {file}.")
    try:
        local = hf_hub_download(repository, file, repo_type="dataset") if path is None else Path(path, file)
    except (LocalEntryNotFoundError, HfHubHTTPError) as error:
        raise OSError(how_to_provide(repository, path)) from error
    table = pyarrow.parquet.read_table(local)
    check_known(columns, table.column_names, f"{file}: column", " is missing")
    return list(table.select(list(columns)).to_pylist())


def named(names: Sequence[str] | str | None) -> list[str]:
    """Names that are given as a list, or separated by commas."""
    return [name.strip() for name in names.split(",")] if isinstance(names, str) else list(names or ())


def check_known(names: Sequence[str], known: Sequence[str], kind: str, rest: str = "") -> None:
    """Refuse the first name that is not known; the error lists those that are."""
    for name in names:
        if name not in known:
            raise ValueError(f"{kind} {name!r}{rest}. Available: {', '.join(known)}.")


def _check_copy(repository: str, path: str | Path | None) -> None:
    if path is not None and not Path(path).is_dir():
        raise FileNotFoundError(f"{path} is not a folder: `path` names a local copy of the data set {repository}.")


def how_to_provide(repository: str, path: str | Path | None) -> str:
    """What to do when a data set cannot be had."""
    if path is not None:
        return f"{path} is not a copy of {repository}: it must have the layout of the data set on the hub."
    return (
        f"Cannot get the data set {repository!r}: the hub cannot be reached and it is not in the local cache. With "
        f"a connection run `hf download {repository} --repo-type dataset --local-dir DIR`, then load it with "
        "path=DIR (on the command line: --option path=DIR)."
    )
