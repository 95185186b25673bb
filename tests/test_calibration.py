"""`Calibration`: validation, canonical form, and the string that is its identity."""

from __future__ import annotations

import dataclasses
import json
import math
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenspan import Calibration

fractions = st.floats(0, 1)
layer_sets = st.one_of(
    st.sampled_from(["half", "last", "all"]),
    st.integers(1, 40),
    st.floats(0, 1, exclude_min=True, exclude_max=True),
    st.lists(st.integers(0, 40), min_size=1, max_size=5).map(tuple),
)


@st.composite
def calibrations(draw) -> Calibration:
    variant = draw(st.sampled_from(["soft", "uniform", "hard"]))
    return Calibration(
        variant,
        strength=draw(fractions),
        layers=draw(layer_sets),
        basket_size=draw(st.integers(1, 5000)),
        self_mass=draw(fractions) if variant == "hard" else 0.3,
        first_token=draw(st.one_of(st.none(), st.sampled_from(["keep", "equal"]), fractions)),
        partition=draw(st.sampled_from(["paper", "even"])),
    )


@given(calibrations())
def test_round_trips(calibration) -> None:
    assert Calibration.parse(str(calibration)) == calibration
    assert Calibration.from_dict(json.loads(json.dumps(calibration.to_dict()))) == calibration
    assert pickle.loads(pickle.dumps(calibration)) == calibration


@given(calibrations(), calibrations())
def test_string_hash_and_equality_agree(one, other) -> None:
    assert (str(one) == str(other)) == (one == other)
    assert one != other or hash(one) == hash(other)


@given(calibrations())
def test_string_is_safe_in_file_names(calibration) -> None:
    assert not set(str(calibration)) & set("/\\:*?\"<>| '\n")


def test_defaults() -> None:
    default = Calibration()
    assert dataclasses.astuple(default) == ("soft", 0.5, "half", 128, 0.3, None, "paper")
    assert str(default) == "soft,strength=0.5,layers=half,basket_size=128"
    assert Calibration.parse("soft") == default


@pytest.mark.parametrize(
    ("one", "same"),
    [
        ({"layers": 1}, {"layers": "last"}),
        ({"layers": 0.5}, {"layers": "half"}),
        ({"layers": (3, 1, 3)}, {"layers": [1, 3]}),
        ({"strength": 1}, {"strength": 1.0}),
        ({"strength": -0.0}, {"strength": 0}),
        ({"first_token": "keep"}, {}),
        ({"variant": "uniform", "first_token": "equal"}, {"variant": "uniform"}),
        ({"strength": np.float64(0.25), "basket_size": np.int64(64)}, {"strength": 0.25, "basket_size": 64}),
    ],
)
def test_settings_that_mean_the_same_are_the_same(one, same) -> None:
    assert Calibration(**one) == Calibration(**same)
    assert str(Calibration(**one)) == str(Calibration(**same))
    assert hash(Calibration(**one)) == hash(Calibration(**same))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"layers": 4}, {"layers": (4,)}),
        ({"layers": "all"}, {"layers": "last"}),
        ({"layers": 0.25}, {"layers": 25}),
        ({"first_token": 0.0}, {}),
        ({"first_token": 0.0}, {"first_token": "equal"}),
        ({"variant": "hard"}, {"variant": "hard", "self_mass": 0.30000000000000004}),
    ],
)
def test_settings_that_differ_have_other_strings(one, other) -> None:
    assert Calibration(**one) != Calibration(**other)
    assert str(Calibration(**one)) != str(Calibration(**other))


@pytest.mark.parametrize(
    ("settings", "error", "says"),
    [
        ({"variant": "softer"}, ValueError, "soft, uniform, hard"),
        ({"strength": 1.01}, ValueError, r"\[0, 1\], not 1.01"),
        ({"strength": math.nan}, ValueError, "nan"),
        ({"strength": "0.5"}, TypeError, "str"),
        ({"strength": True}, TypeError, "bool"),
        ({"basket_size": 0}, ValueError, "at least 1, not 0"),
        ({"basket_size": 1.5}, TypeError, "float"),
        ({"layers": 1.0}, ValueError, "use 'all'"),
        ({"layers": 0}, ValueError, "at least 1"),
        ({"layers": True}, TypeError, "bool"),
        ({"layers": math.nan}, ValueError, "nan"),
        ({"layers": "first"}, ValueError, "'first'"),
        ({"layers": ()}, ValueError, "empty"),
        ({"layers": (-1,)}, ValueError, "counts from 0"),
        ({"layers": (0.5,)}, TypeError, "0.5"),
        ({"layers": None}, TypeError, "NoneType"),
        ({"variant": "hard", "self_mass": 2}, ValueError, "self_mass"),
        ({"self_mass": 0.4}, ValueError, "no effect"),
        ({"first_token": "drop"}, ValueError, "'drop'"),
        ({"first_token": -1}, ValueError, "first_token"),
        ({"partition": "odd"}, ValueError, "paper, even, not 'odd'"),
    ],
)
def test_bad_settings_are_refused(settings, error, says) -> None:
    with pytest.raises(error, match=says):
        Calibration(**settings)


@pytest.mark.parametrize(
    "text",
    ["", "sfot", "soft,strength", "soft,strength=x", "soft,speed=1", "soft,layers=2,layers=3", "soft,layers=1+x"],
)
def test_unreadable_strings_are_refused(text) -> None:
    with pytest.raises(ValueError, match=r"(?i)variant must|calibration"):
        Calibration.parse(text)


def test_parse_takes_any_subset_in_any_order() -> None:
    assert Calibration.parse(" basket_size=64 , variant=hard, layers=0+2 ") == Calibration(
        "hard", layers=(0, 2), basket_size=64
    )


def test_unknown_saved_settings_are_refused() -> None:
    with pytest.raises(ValueError, match="newer evenspan"):
        Calibration.from_dict({"variant": "soft", "temperature": 1.0})


@pytest.mark.parametrize(
    ("layers", "chosen"),
    [
        ("last", (9,)),
        ("half", (5, 7, 9)),
        ("all", (0, 1, 3, 4, 5, 7, 9)),
        (3, (5, 7, 9)),
        (0.29, (7, 9)),
        (0.01, (9,)),
        ((4, 0), (0, 4)),
    ],
)
def test_layers_count_only_those_with_full_attention(layers, chosen) -> None:
    assert Calibration(layers=layers).choose_layers((0, 1, 3, 4, 5, 7, 9), total=10) == chosen


def test_share_of_layers_is_not_hurt_by_rounding() -> None:
    assert len(Calibration(layers=0.29).choose_layers(range(100), total=100)) == 29


@pytest.mark.parametrize(
    ("layers", "says"), [((2,), "whole passage"), ((10,), "0 to 9"), (8, "more layers than the 7")]
)
def test_layers_a_model_does_not_have_are_refused(layers, says) -> None:
    with pytest.raises(ValueError, match=says):
        Calibration(layers=layers).choose_layers((0, 1, 3, 4, 5, 7, 9), total=10)
