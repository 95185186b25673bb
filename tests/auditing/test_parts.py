"""The parts of one document: what the audit measures, in the order of the document."""

from __future__ import annotations

import numpy as np
import pytest
from helpers import tiny

import evenspan
from evenspan import Calibration
from evenspan.auditing.parts import parts

CALIBRATION = Calibration(strength=1.0, basket_size=16)
TEXT = " ".join(tiny.text(40, seed=seed) for seed in range(5))


@pytest.mark.parametrize("question", [None, tiny.text(20, seed=9)])
def test_shares_are_of_similarities(cls_model, question) -> None:
    found = parts(cls_model, TEXT, CALIBRATION, segments=4, question=question)
    texts = [part.text for part in found.parts]
    assert " ".join(texts) == TEXT
    assert found.tokens == 200
    assert found.unread == 0
    segments, plain = cls_model.encode_document(texts), cls_model.encode_document(TEXT)
    with evenspan.calibrated(cls_model, CALIBRATION):
        calibrated = cls_model.encode_document(TEXT)
    assert np.abs(plain - calibrated).max() > 1e-3
    for side, whole in (("plain", plain), ("calibrated", calibrated)):
        similarities = segments @ whole
        reflections = [getattr(part, side) for part in found.parts]
        np.testing.assert_allclose([one.similarity for one in reflections], similarities, atol=1e-5)
        positive = np.maximum(similarities, 0)
        np.testing.assert_allclose([one.share for one in reflections], positive / positive.sum(), atol=1e-5)
    if question is None:
        assert found.question is None
        assert all(part.question is None for part in found.parts)
    else:
        asked = cls_model.encode_query(question)
        np.testing.assert_allclose(found.question, [plain @ asked, calibrated @ asked], atol=1e-5)
        np.testing.assert_allclose([part.question for part in found.parts], segments @ asked, atol=1e-5)


def test_a_calibrated_model_is_left_as_it_was(cls_model) -> None:
    evenspan.calibrate(cls_model, CALIBRATION)
    before = cls_model.encode_document(TEXT)
    found = parts(cls_model, TEXT, Calibration(strength=0.0))
    assert [part.plain for part in found.parts] == [part.calibrated for part in found.parts]
    np.testing.assert_array_equal(cls_model.encode_document(TEXT), before)


def test_a_short_document_is_refused(cls_model) -> None:
    with pytest.raises(ValueError, match="30 tokens: too few for 5 parts of 16"):
        parts(cls_model, tiny.text(30), CALIBRATION)
