"""Run by `test_kernels`: the fused rows, one or all of them, against the PyTorch rows over layouts, head groups, sizes, dtypes
and settings.

TRITON_INTERPRET=1 python tests/helpers/kernel_check.py
"""

from __future__ import annotations

import itertools
import random
import sys
import warnings
from typing import Any

import torch
from layouts import LAYOUTS, layout_of

from evenspan import Calibration
from evenspan.core.baskets import Baskets
from evenspan.core.calls import baskets_of
from evenspan.core.every_row import calibrated_every_row, fused_every_row
from evenspan.core.rows import calibrated_rows, fused_rows, pooled_query
from evenspan.core.triton.geometry import launch as geometry

warnings.filterwarnings("ignore")  # the interpreter computes with infinities as numpy does, and says so
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
LIMITS = {torch.float32: 5e-6, torch.float16: 2e-3, torch.bfloat16: 1.6e-2}
SETTINGS = [
    Calibration("soft", 0.5),
    Calibration("uniform", 1.0),
    Calibration("hard", 0.7, self_mass=0.9, first_token=0.4),
    Calibration("hard", 1.0, self_mass=0.2, first_token="equal"),
    Calibration("uniform", 0.5, first_token="keep"),
]
# Basket sizes and head sizes that are and are not multiples of what a kernel takes at once.
SHAPES = [
    (5, 32, 1, 1),
    (17, 64, 2, 2),
    (70, 40, 1, 3),
    (130, 96, 1, 1),
    (3, 128, 2, 1),
    (9, 256, 1, 2),
    (64, 16, 1, 1),
]


# The same for all rows: baskets that are tiles and others.
EVERY_ROW_SHAPES = [
    (16, 32, 1, 1),
    (32, 64, 2, 2),
    (24, 16, 1, 3),
    (64, 40, 1, 1),
    (128, 64, 1, 1),
    (5, 32, 2, 1),
    (140, 32, 1, 1),
    (32, 256, 1, 1),
    (256, 128, 1, 2),
]


def _numbers_of_numpy() -> None:
    """numpy 2.4 makes no numbers of arrays with one element any more; Triton 3.6's interpreter does, of bounds of loops."""
    from triton.runtime import interpreter

    before = interpreter._patch_lang_tensor

    def patched(tensor: Any, scope: Any) -> None:
        before(tensor, scope)
        scope.set_attr(tensor, "__index__", lambda self: int(self.handle.data.item()))

    interpreter._patch_lang_tensor = patched


def batch(lengths: list[int], layout: str, pooling: str, basket_size: int, even: bool) -> Baskets:
    longest = max(lengths)
    if layout == "packed":
        cumulative = torch.tensor([0, *itertools.accumulate(lengths)], dtype=torch.int32)
        return Baskets.from_lengths(cumulative, sum(lengths), longest, pooling, basket_size, even=even)
    mask, inside = padded(lengths, longest, layout, pooling)
    return Baskets.from_mask(mask, pooling, basket_size, inside, even=even)


def padded(lengths: list[int], longest: int, layout: str, pooling: str) -> tuple[torch.Tensor, torch.Tensor | None]:
    column = torch.arange(longest).expand(len(lengths), longest)
    length = torch.tensor(lengths).unsqueeze(1)
    mask = (column < length if layout == "right" else column >= longest - length).long()
    if layout == "left":
        mask[0, longest - lengths[0] + 2] = 0  # a hole
        mask[-1] = 0  # nothing at all
    # A pooling token that is not at the edge, as when a prompt is left out of pooling.
    inside = (mask.argmax(dim=1) + length.flatten() // 3) if layout == "right" and pooling == "cls" else None
    return mask, inside


def check(number: int, layout: str, pooling: str, dtype: torch.dtype) -> None:
    pick = random.Random(number)
    torch.manual_seed(number)
    basket_size, size, groups, repeat = SHAPES[number % len(SHAPES)]
    lengths = [2 * basket_size + pick.randint(3, basket_size + 3), pick.randint(1, basket_size), basket_size + 2]
    if layout == "packed":
        lengths.insert(number % 4, 0)  # a text without tokens, anywhere
    even = pick.random() < 0.5
    baskets = batch(lengths, layout, pooling, basket_size, even).to(DEVICE)
    check_geometry(baskets, lengths, layout, pooling, (basket_size, even), number)
    rows, columns = (1, sum(lengths)) if layout == "packed" else (len(lengths), max(lengths))
    heads = groups * repeat
    # Laid out as projections leave them: tokens before heads.
    query, key, value = (
        (3 * torch.randn(rows, columns, count, size)).to(dtype).to(DEVICE).transpose(1, 2)
        for count in (heads, groups, groups)
    )
    setting = SETTINGS[number % len(SETTINGS)]
    softcap = 15.0 if number % 3 == 0 else None
    arguments = (baskets, setting, size**-0.5, softcap)
    query_rows = pooled_query(query, baskets)
    expected = reference(query_rows, key, value, *arguments)
    got = fused_rows(query_rows.unsqueeze(2), key, value, *arguments).squeeze(1)
    exist = torch.tensor(lengths, device=DEVICE) > 0  # a text without tokens has no row that anyone would read
    compare(got[exist], expected[exist], f"rows of case {number}: {layout} {pooling} {dtype} {setting}")
    plain = torch.randn(rows, columns, heads, size, device=DEVICE).to(dtype)
    got = fused_rows(query, key, value, *arguments, plain.clone())
    flat, before = got.flatten(0, 1), plain.flatten(0, 1)
    active = baskets.pooled[baskets.active]
    compare(flat[active], expected[baskets.active], f"written rows of case {number}")
    untouched = torch.ones(flat.shape[0], dtype=torch.bool, device=DEVICE)
    untouched[active] = False
    assert torch.equal(flat[untouched], before[untouched]), f"case {number} wrote over rows that are not its own"
    assert baskets.active.any()
    assert not baskets.active.all(), "each case has a row that is shorter than a basket"


def check_geometry(
    expected: Baskets, lengths: list[int], layout: str, pooling: str, cut: tuple[int, bool], number: int
) -> None:
    """The fused geometry is the PyTorch geometry, in every tensor."""
    given = None
    if layout == "packed":
        tokens = torch.tensor([0, *itertools.accumulate(lengths)], dtype=torch.int32)
    else:
        tokens, given = padded(lengths, max(lengths), layout, pooling)
    given = None if given is None else given.to(DEVICE)
    got = geometry(tokens.to(DEVICE), given, pooling == "last", *cut, *expected.slots.shape[1:])
    for name, tensor in zip(("pooled", "first", "slots", "filled", "present", "active"), got, strict=True):
        assert torch.equal(tensor, getattr(expected, name)), f"{name} of case {number}: {tensor} {expected}"


def reference(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, *arguments: object) -> torch.Tensor:
    """The PyTorch path, on the CPU, where it is the one that is chosen."""
    baskets, *rest = arguments
    return calibrated_rows(query.cpu(), key.cpu(), value.cpu(), baskets.to("cpu"), *rest).to(DEVICE)


def check_every_row(number: int, layout: str, dtype: torch.dtype) -> None:
    """All rows of a mean-pooled model by the fused kernel are those of the PyTorch path."""
    pick = random.Random(number)
    torch.manual_seed(number)
    basket_size, size, groups, repeat = EVERY_ROW_SHAPES[number % len(EVERY_ROW_SHAPES)]
    lengths = [2 * basket_size + pick.randint(3, basket_size + 3), pick.randint(1, basket_size), basket_size + 2, 1]
    if layout == "packed":
        lengths.insert(number % 4, 0)
    partition, closing = pick.choice(["paper", "even"]), pick.random() < 0.5
    setting = Calibration(strength=pick.choice([0.05, 0.5, 1.0]), basket_size=basket_size, partition=partition)
    baskets = baskets_of(layout_of(lengths, layout), "last" if closing else "cls", setting)
    rows, columns = (1, sum(lengths)) if layout == "packed" else (len(lengths), max(lengths))
    states = [
        (3 * torch.randn(rows, columns, count, size)).to(dtype).transpose(1, 2)
        for count in (groups * repeat, groups, groups)
    ]
    arguments = (setting, size**-0.5, 15.0 if number % 3 == 0 else None)
    expected = calibrated_every_row(*states, baskets, *arguments)
    got = fused_every_row(*(state.to(DEVICE) for state in states), baskets.to(DEVICE), *arguments).cpu()
    assert got.isfinite().all(), "nor may padding be anything that spreads"
    real = baskets.real.view(rows, columns)
    compare(got[real], expected[real], f"every row of case {number}: {layout} {dtype} {setting}, closing {closing}")


def check_gaps() -> None:
    """Padding between tokens is nothing that the fused kernel knows: it says so by what is no number."""
    mask = torch.ones(2, 40, dtype=torch.long)
    mask[1, 7] = 0
    setting = Calibration(basket_size=16)
    baskets = baskets_of({"input_ids": mask, "attention_mask": mask}, "last", setting).to(DEVICE)
    query, key, value = torch.randn(3, 2, 1, 40, 16, device=DEVICE)
    got = fused_every_row(query, key, value, baskets, setting, 0.3, None)
    assert got[0].isfinite().all()
    assert got[1].isnan().all()


def compare(got: torch.Tensor, expected: torch.Tensor, name: str) -> None:
    off = (got.float() - expected.float()).abs().max() / expected.float().abs().max()
    assert got.dtype == expected.dtype
    assert off <= LIMITS[got.dtype], f"{name}: off by {off:.1e}"


def main() -> None:
    if DEVICE == "cpu":
        _numbers_of_numpy()
    grid = list(itertools.product(("right", "left", "packed"), ("cls", "last"), LIMITS))
    cases = [(number, *grid[number % len(grid)]) for number in range(2 * len(grid) - 1)]
    for case in cases:
        check(*case)
    # The interpreter multiplies no bfloat16 matrices.
    dtypes = list(LIMITS) if DEVICE == "cuda" else [torch.float32, torch.float16]
    grid = list(itertools.product(LAYOUTS, dtypes, range(len(EVERY_ROW_SHAPES) if DEVICE == "cuda" else 4)))
    for number, (layout, dtype, _) in enumerate(grid):
        check_every_row(number, layout, dtype)
    check_gaps()
    sys.stdout.write(f"{len(cases) + len(grid)} cases agree on {DEVICE}\n")


if __name__ == "__main__":
    main()
