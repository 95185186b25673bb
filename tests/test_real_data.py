"""The effect on a real model and real data; `make test-real`. Skipped where they are not."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import evenspan
from evenspan import Calibration
from evenspan.evaluation import compare, evaluate, load_benchmark

SHARED = Path(__file__).parent.parent.parent / "shared"
DRCD, MODELS = SHARED / "data" / "drcd-zh", SHARED / "models"

pytestmark = [
    pytest.mark.real,
    pytest.mark.skipif(
        not DRCD.is_dir() or not MODELS.is_dir(), reason="needs the real model and data beside the project"
    ),
]


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
