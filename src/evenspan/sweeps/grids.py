"""Which settings to try: the paper's grid, its ablation, or strengths of your own."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from itertools import product
from pathlib import Path

from evenspan.calibration import Calibration, Layers, Partition, Variant

_VARIANTS: tuple[Variant, ...] = ("uniform", "soft", "hard")
_LAYERS: tuple[Layers, ...] = ("last", "half")


def paper_grid() -> list[Calibration]:
    """The paper's 24 settings: three variants, λ 0.5 and 1, the last layer and the last half, baskets of 128 and 256."""
    return [
        Calibration(variant, strength, layers, size)
        for variant, layers, size, strength in product(_VARIANTS, _LAYERS, (128, 256), (0.5, 1.0))
    ]


def ablation_grid() -> list[Calibration]:
    """The paper's ablation, 40 settings: soft, baskets of 128, λ from 0.05 to 1, the last layer and the last half."""
    return strengths([round(0.05 * step, 2) for step in range(1, 21)])


def strengths(
    values: Iterable[float] = (0.25, 0.5, 0.75, 1.0),
    layers: Sequence[Layers] = _LAYERS,
    variant: Variant = "soft",
    basket_size: int = 128,
    partition: Partition = "paper",
) -> list[Calibration]:
    """One variant and kind of baskets at several strengths, for each of several sets of layers."""
    wanted = list(values)
    return [
        Calibration(variant, value, chosen, basket_size, partition=partition) for chosen in layers for value in wanted
    ]


def even_grid() -> list[Calibration]:
    """Even baskets, for chunks and documents of mixed lengths, 16 settings: soft, λ 0.25 to 1, baskets of 64 and 128."""
    return [setting for size in (64, 128) for setting in strengths(basket_size=size, partition="even")]


def read_grid(name: str | Path) -> list[Calibration]:
    """`"paper"`, `"ablation"`, `"even"`, or a file: one calibration string a line, or a JSON list of strings or settings."""
    grids = {"paper": paper_grid, "ablation": ablation_grid, "even": even_grid}
    if str(name) in grids:
        return grids[str(name)]()
    path, way_out = Path(name), f"write one calibration string per line, such as '{Calibration()}'."
    if not path.is_file():
        raise ValueError(f"Unknown grid {str(name)!r}: use 'paper', 'ablation', 'even', or a file of settings.")
    try:
        text = path.read_text(encoding="utf-8-sig")
        lines = [line.strip() for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]
        entries = json.loads(text) if text.lstrip().startswith(("[", "{")) else lines
    except UnicodeDecodeError:
        raise ValueError(f"{path} is not UTF-8 text: {way_out}") from None
    except (json.JSONDecodeError, RecursionError) as error:
        raise ValueError(f"{path} is not valid JSON: {error}.") from None
    if not isinstance(entries, list):
        raise ValueError(f"{path} must contain a JSON list of calibrations, or one calibration string per line.")
    if not entries:
        raise ValueError(f"{path} contains no settings: {way_out}")
    return [_read(entry, path) for entry in entries]


def _read(entry: object, path: Path) -> Calibration:
    try:
        if isinstance(entry, str):
            return Calibration.parse(entry)
        if isinstance(entry, dict):
            return Calibration.from_dict(entry)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{path}: {error}") from None
    raise ValueError(f"{path}: {json.dumps(entry)} is not a calibration: write a string such as '{Calibration()}'.")
