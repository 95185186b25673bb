"""The effect on a real model and real data; `make test-real`. Skipped where they are not."""

from __future__ import annotations

import json
import random
import subprocess
import sys

import pytest
from helpers.paths import SHARED

import evenspan
from evenspan import Calibration
from evenspan.evaluation import compare, evaluate, load_benchmark
from evenspan.models.miniatures import base_folder

DRCD, MODELS = SHARED / "data" / "drcd-zh", SHARED / "models"
NEWWIKI = SHARED / "data" / "newwiki-long-en"

pytestmark = [
    pytest.mark.real,
    pytest.mark.skipif(
        not DRCD.is_dir() or not MODELS.is_dir(), reason="needs the real model and data beside the project"
    ),
]


def newwiki() -> list[str]:
    lines = (NEWWIKI / "corpus.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line)["text"] for line in lines]


@pytest.fixture(scope="module")
def bge_small_zh(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bge-small-zh-v1.5")
    source = MODELS / "bge-small-zh-v1.5"
    subprocess.run([sys.executable, str(MODELS / "unpack.py"), str(source), str(folder)], check=True)
    return evenspan.load(folder, device="cpu")


def test_bge_small_zh_on_drcd(bge_small_zh, report) -> None:
    """A prototype measured 84.9 / 77.7 / 78.3, HM 80.2, PSI 0.085, and 84.5 / 79.3 / 80.5, HM 81.4, PSI 0.061."""
    benchmark = load_benchmark(DRCD)
    assert benchmark.group_counts() == {"beginning": 1096, "middle": 711, "end": 543}
    plain = evaluate(bge_small_zh, benchmark, progress=False)
    calibrated = evaluate(bge_small_zh, benchmark, Calibration(basket_size=64), progress=False)
    for result, groups, mean, psi in (
        (plain, (84.9, 77.7, 78.3), 80.2, 0.085),
        (calibrated, (84.5, 79.3, 80.5), 81.4, 0.061),
    ):
        for name, expected in zip(("beginning", "middle", "end"), groups, strict=True):
            assert abs(100 * result.groups[name].ndcg - expected) < 0.3
            assert result.groups[name].ndcg_interval is not None
            report(f"drcd-zh {result.method}, nDCG@10 {name}: {100 * result.groups[name].ndcg:.2f}")
        assert abs(100 * result.harmonic_mean - mean) < 0.3
        assert abs(result.psi - psi) < 0.005
        report(f"drcd-zh {result.method}, HM: {100 * result.harmonic_mean:.2f}")
        report(f"drcd-zh {result.method}, PSI: {result.psi:.4f}")
    differences = compare([plain, calibrated]).rows[1].differences
    assert differences["HM"].value > 0
    assert differences["HM"].significant
    assert differences["PSI"].value < 0
    assert differences["nDCG@10 end"].p_value < 0.001


def test_bm25_finds_the_data_position_neutral(bge_small_zh) -> None:
    result = evaluate(bge_small_zh, load_benchmark(DRCD), method="bm25", progress=False)
    assert result.psi < 0.02


@pytest.mark.skipif(not NEWWIKI.is_dir(), reason="needs the real documents beside the project")
@pytest.mark.parametrize("pooling", ["cls", "last"])
def test_both_miniatures_have_primacy_and_calibration_flattens_it(pooling, report) -> None:
    found = evenspan.audit(
        evenspan.miniature(pooling, device="cpu"), newwiki(), Calibration(), sample=100, progress=False
    )
    plain, calibrated = found.plain.representation, found.calibrated.representation
    assert plain.verdict == "strong primacy"
    assert found.slope_change.interval[0] > 0
    assert abs(calibrated.slope.value) < 0.7 * abs(plain.slope.value)
    name = f"audit of newwiki-long-en, miniature:{pooling}"
    report(f"{name}, slope downwards: {-plain.slope.value:.4f}")
    report(f"{name}, in standard deviations of the effect of content: {-plain.relative_slope.value:.2f}")
    report(f"{name}, flattened by: {1 - calibrated.slope.value / plain.slope.value:.3f}")


@pytest.mark.skipif(not NEWWIKI.is_dir(), reason="needs the real documents beside the project")
def test_calibration_helps_the_mean_miniature(report) -> None:
    """At the default: HM up by at least one and a half points, PSI down by at least a third."""
    model, benchmark = evenspan.miniature("mean", device="cpu"), load_benchmark(NEWWIKI)
    plain, calibrated = (evaluate(model, benchmark, setting, progress=False) for setting in (None, Calibration()))
    assert calibrated.harmonic_mean > plain.harmonic_mean + 0.015
    assert calibrated.psi < plain.psi * 2 / 3
    assert plain.groups["beginning"].ndcg > plain.groups["middle"].ndcg > plain.groups["end"].ndcg
    differences = compare([plain, calibrated]).rows[1].differences
    assert differences["HM"].significant
    for result in (plain, calibrated):
        report(f"newwiki-long-en miniature:mean {result.method}, HM: {100 * result.harmonic_mean:.2f}")
        report(f"newwiki-long-en miniature:mean {result.method}, PSI: {result.psi:.4f}")


@pytest.mark.skipif(not NEWWIKI.is_dir(), reason="needs the real documents beside the project")
def test_controls_of_the_audit(report) -> None:
    """Words shuffled over the whole document: no order of content is left, so what is found is position, and segments
    are alike. A mean over all tokens has no pooling token that could look away.
    """
    texts, model = newwiki(), evenspan.miniature("cls", device="cpu")
    draw = random.Random(0)
    shuffled = [" ".join(draw.sample(words, len(words))) for words in map(str.split, texts)]
    real = evenspan.audit(model, texts, sample=100, progress=False).plain.representation
    control = evenspan.audit(model, shuffled, sample=100, progress=False).plain.representation
    assert control.bias == "primacy"
    assert control.slope.value / control.relative_slope.value < 0.75 * real.slope.value / real.relative_slope.value
    mean = evenspan.load(base_folder(None), device="cpu")
    averaged = evenspan.audit(mean, texts, sample=None, progress=False)
    assert averaged.truncation.cut == len(texts)
    assert averaged.plain.attention.every_row
    assert abs(averaged.plain.representation.relative_slope.value) < 0.2 * abs(real.relative_slope.value)
    for name, one in (("cls", real), ("cls, words shuffled", control), ("mean", averaged.plain.representation)):
        report(f"audit of newwiki-long-en, {name}, slope downwards: {-one.slope.value:.4f}")
        report(f"audit of newwiki-long-en, {name}, in standard deviations of content: {-one.relative_slope.value:.2f}")
