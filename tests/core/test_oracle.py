"""Golden vectors of an independent implementation: eager attention, full matrices."""

from __future__ import annotations

import json

import numpy as np
import pytest
import transformers
from helpers.paths import ORACLE
from sentence_transformers import SentenceTransformer

import evenspan
from evenspan import Calibration

CASES = json.loads((ORACLE / "cases.json").read_text())
TEXTS = json.loads((ORACLE / "texts.json").read_text())
GTE = json.loads((ORACLE / "gte-new-cases.json").read_text())
needs_gte = pytest.mark.skipif(
    not hasattr(transformers, "GteModel"), reason=f"transformers {transformers.__version__} has no native gte"
)


def setting(case: dict[str, object]) -> Calibration:
    names = ("variant", "strength", "layers", "basket_size", "first_token")
    return Calibration(**{name: case[name] for name in names if name in case})


@pytest.fixture(scope="module")
def models() -> dict[str, SentenceTransformer]:
    return {name: SentenceTransformer(str(ORACLE / name), device="cpu") for name in ("xlmr", "qwen3")}


@pytest.fixture(scope="module")
def expected() -> dict[str, np.ndarray]:
    return dict(np.load(ORACLE / "expected.npz"))


def test_every_golden_case_is_here() -> None:
    assert (len(CASES), len(GTE["cases"])) == (108, 12)


@pytest.mark.parametrize("name", ["xlmr", "qwen3"])
def test_plain(name, models, expected) -> None:
    np.testing.assert_allclose(models[name].encode_document(TEXTS), expected[f"{name}__plain"], atol=1e-5, rtol=0)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["key"])
def test_calibrated(case, models, expected) -> None:
    golden = expected[case["key"].replace("/", "__")]
    with evenspan.calibrated(models[case["model"]], setting(case)) as model:
        np.testing.assert_allclose(model.encode_document(TEXTS), golden, atol=1e-5, rtol=0)
        # One by one: no padding, another mask path.
        singly = np.stack([model.encode_document(text) for text in TEXTS])
    np.testing.assert_allclose(singly, golden, atol=1e-5, rtol=0)


@needs_gte
@pytest.mark.parametrize("case", [None, *GTE["cases"]], ids=lambda case: case["key"] if case else "plain")
def test_native_gte(case) -> None:
    model = evenspan.load(ORACLE / "gte-new", device="cpu")
    golden = np.load(ORACLE / "gte-new-expected.npz")["plain" if case is None else case["key"]]
    if case is not None:
        evenspan.calibrate(model, setting(case))
    np.testing.assert_allclose(model.encode_document(GTE["texts"]), golden, atol=1e-5, rtol=0)
