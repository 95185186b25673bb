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
