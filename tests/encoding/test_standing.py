"""Batches that come one by one have the vectors that all texts together have."""

from __future__ import annotations

import numpy as np
import pytest
from helpers import tiny

import evenspan
from evenspan.encoding import Encoder, StandingEncoder

TEXTS = [tiny.text(words) for words in (3, 200, 40, 97)]


@pytest.fixture(params=["array", "own"])
def model(request, cls_model):
    evenspan.calibrate(cls_model, evenspan.Calibration(basket_size=16))
    if request.param == "own":  # a model that is left to sentence-transformers
        own = cls_model.preprocess
        cls_model.preprocess = lambda *args, **kwargs: own(*args, **kwargs)
    return cls_model


@pytest.mark.parametrize("role", ["document", "query"])
def test_batches_one_by_one(model, role) -> None:
    standing = StandingEncoder(Encoder(model, role=role, unit=False))
    ready = standing.read(TEXTS)
    expected = model.encode_query(TEXTS) if role == "query" else model.encode_document(TEXTS)
    for batch in ([0, 1], [3], [2, 0]):
        vectors = standing.fetch(standing.launch([ready[place] for place in batch]))
        np.testing.assert_allclose(vectors, expected[batch], atol=2e-6)
    assert [text.cut for text in standing.read([*TEXTS, tiny.text(3000)])] == [False] * 4 + [True]
    assert list(standing.plan([text.tokens for text in ready])) == [[1, 3, 2, 0]]
    standing.close()


def test_the_setting_is_that_of_the_beginning(cls_model) -> None:
    evenspan.calibrate(cls_model, evenspan.Calibration(basket_size=16))
    standing = StandingEncoder(Encoder(cls_model, unit=False))
    ready = standing.read(TEXTS[1:2])
    before = standing.fetch(standing.launch(ready))
    with evenspan.calibrated(cls_model, evenspan.Calibration(strength=1.0, basket_size=8)):
        np.testing.assert_array_equal(standing.fetch(standing.launch(ready)), before)
        assert np.abs(cls_model.encode_document(TEXTS[1]) - before[0]).max() > 1e-3
    standing.close()
