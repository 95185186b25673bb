"""The geometry of a batch: which key lies in which basket."""

from __future__ import annotations

import pytest
import torch

from evenspan.calibration import Calibration
from evenspan.core.baskets import Baskets
from evenspan.core.rows import replace_rows


def basket_numbers(baskets: Baskets, row: int) -> list[int]:
    return baskets.basket_of_key[baskets.row_of_key == row].tolist()


def mask(*rows: str) -> torch.Tensor:
    return torch.tensor([[int(letter) for letter in row] for row in rows])


# In each list: 0 is the pooling token, 1 an isolated first token, 2 and up are content baskets, the last is padding.
CASES = [
    ("cls", "1111100", None, [0, 2, 2, 3, 3, 5, 5]),
    ("cls", "0011111", None, [5, 5, 0, 2, 2, 3, 3]),
    ("last", "1111110", None, [1, 2, 2, 3, 3, 0, 5]),
    ("last", "0111111", None, [5, 1, 2, 2, 3, 3, 0]),
    ("cls", "1111110", 2, [2, 2, 0, 3, 3, 4, 5]),  # a prompt that is not pooled is content
    ("cls", "0111111", 3, [5, 2, 2, 0, 3, 3, 4]),
]


@pytest.mark.parametrize(("pooling", "row", "pooled", "expected"), CASES)
def test_padded(pooling, row, pooled, expected) -> None:
    baskets = Baskets.from_mask(mask(row), pooling, 2, None if pooled is None else torch.tensor([pooled]))
    assert basket_numbers(baskets, 0) == expected
    assert baskets.active.tolist() == [True]


EVEN = [
    ("cls", "11111100", [0, 2, 2, 2, 3, 3, 5, 5], True),  # five content tokens, three and two
    ("cls", "00111111", [5, 5, 0, 2, 2, 2, 3, 3], True),
    ("cls", "11111000", [0, 2, 2, 2, 2, 5, 5, 5], False),  # an only basket is left alone
    ("last", "11111110", [1, 2, 2, 2, 3, 3, 0, 4], True),
    ("last", "01111110", [4, 1, 2, 2, 2, 2, 0, 4], False),
]


@pytest.mark.parametrize(("pooling", "row", "expected", "active"), EVEN)
def test_even_baskets(pooling, row, expected, active) -> None:
    baskets = Baskets.from_mask(mask(row), pooling, 3, even=True)
    padding = 2 + baskets.slots.shape[1]
    assert basket_numbers(baskets, 0) == [padding if number > 3 else number for number in expected]
    assert baskets.active.tolist() == [active]


@pytest.mark.parametrize("basket_size", [1, 2, 5, 16])
def test_even_baskets_differ_by_one_at_most(basket_size) -> None:
    lengths = list(range(1, 90))
    cumulative = torch.tensor([0, *lengths]).cumsum(0)
    baskets = Baskets.from_lengths(cumulative, sum(lengths), 89, "cls", basket_size, even=True)
    sizes = baskets.filled.sum(dim=2)
    for length, of_row, active in zip(lengths, sizes.tolist(), baskets.active.tolist(), strict=True):
        there = [size for size in of_row if size]
        assert sum(there) == length - 1
        assert len(there) == min(length - 1, max(1, (2 * (length - 1) + basket_size) // (2 * basket_size)))
        assert not there or max(there) - min(there) <= 1
        assert active == (len(there) > 1)


def test_packed_rows_are_the_padded_ones_without_padding() -> None:
    lengths = [5, 1, 7, 2, 3]
    cumulative = torch.tensor([0, 5, 6, 13, 15, 18], dtype=torch.int32)
    padded_mask = torch.arange(7) < torch.tensor(lengths).unsqueeze(1)
    for pooling in ("cls", "last"):
        packed = Baskets.from_lengths(cumulative, 18, 7, pooling, 2)
        padded = Baskets.from_mask(padded_mask, pooling, 2)
        for row, length in enumerate(lengths):
            assert basket_numbers(packed, row) == basket_numbers(padded, row)[:length]
        assert packed.active.tolist() == padded.active.tolist()


def test_baskets_that_nothing_can_fill_take_no_room() -> None:
    baskets = Baskets.from_mask(mask("1111"), "cls", 10**9)
    assert baskets.slots.shape == (1, 1, 4)
    assert baskets.active.tolist() == [False]


def test_packed_texts_without_tokens_do_no_harm() -> None:
    """Their pooled position is another text's; what is written there must be that text's row."""
    torch.manual_seed(0)
    query, key, value = torch.randn(3, 1, 2, 90, 8)

    def written(pooling: str, *lengths: int) -> torch.Tensor:
        cumulative = torch.tensor([0, *lengths]).cumsum(0)
        baskets = Baskets.from_lengths(cumulative, 90, 50, pooling, 16)
        return replace_rows(torch.zeros(1, 90, 2, 8), query, key, value, baskets, Calibration(), 0.3)

    for pooling, places in (("last", [39, 89]), ("cls", [0, 40])):
        expected = written(pooling, 40, 50)
        assert (expected.flatten(0, 1).flatten(1).abs().sum(dim=1) > 0).nonzero().flatten().tolist() == places
        for lengths in ((0, 40, 50), (40, 0, 50), (40, 50, 0)):
            torch.testing.assert_close(written(pooling, *lengths), expected)


def test_rows_shorter_than_a_basket_are_left_alone() -> None:
    baskets = Baskets.from_mask(mask("1110", "1111", "1000", "0000"), "cls", 3)
    assert baskets.active.tolist() == [False, True, False, False]
    # With the first token isolated one token fewer is content.
    assert Baskets.from_mask(mask("1111", "0111"), "last", 2).active.tolist() == [True, False]


def test_a_pooled_row_that_is_padding_is_left_alone() -> None:
    """As sentence-transformers has it for a left-padded text whose prompt, excluded from pooling, is all there is."""
    assert Baskets.from_mask(mask("00111"), "cls", 1, torch.tensor([0])).active.tolist() == [False]
