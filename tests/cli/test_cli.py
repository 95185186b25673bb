"""The command line, as people call it."""

from __future__ import annotations

import json
import subprocess
import sys

from helpers import tiny
from helpers.paths import ORACLE

import evenspan
from evenspan.cli import main


def test_inspect(capsys) -> None:
    assert main(["inspect", str(ORACLE / "qwen3")]) == 0
    printed = capsys.readouterr().out
    for words in ("yes", "Qwen3Model", "sdpa", "last token", "layers 2–3", "512 tokens", "calibration now: none"):
        assert words in printed


def test_inspect_json(capsys) -> None:
    assert main(["inspect", str(ORACLE / "xlmr"), "--calibration", "hard,layers=last", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["calibratable"] is True
    assert found["pooling"] == "cls"
    assert found["calibrated_layers"] == [3]
    assert found["calibration"] == "hard,strength=0.5,layers=last,basket_size=128,self_mass=0.3"


def test_inspect_says_why_not(capsys, tmp_path) -> None:
    tiny.sentence_transformer("bert-cls", tmp_path / "base", pooling="mean").save_pretrained(str(tmp_path / "model"))
    assert main(["inspect", str(tmp_path / "model")]) == 1
    assert "no. This model cannot be calibrated: it pools by 'mean'" in capsys.readouterr().out


def test_inspect_shows_a_saved_calibration(capsys, cls_model, tmp_path) -> None:
    setting = evenspan.Calibration("uniform")
    evenspan.calibrate(cls_model, setting).save_pretrained(str(tmp_path / "saved"))
    assert main(["inspect", str(tmp_path / "saved")]) == 0
    assert f"calibration now: {setting}" in capsys.readouterr().out


def test_errors_are_one_line(capsys) -> None:
    assert main(["inspect", "./nowhere"]) == 2
    assert capsys.readouterr().err == (
        "evenspan: There is no model folder './nowhere', and it is no name on the hub either.\n"
    )
    assert main(["inspect", "x", "--calibration", "soft,strength=2"]) == 2
    assert "strength must lie in [0, 1], not 2.0" in capsys.readouterr().err


def test_help_and_version_are_quick_and_need_no_torch() -> None:
    script = "import sys; from evenspan.cli import main\ntry: main({})\nfinally: print('torch' in sys.modules)"
    for arguments, expected in ((["--help"], "inspect"), (["--version"], f"evenspan {evenspan.__version__}")):
        done = subprocess.run([sys.executable, "-c", script.format(arguments)], capture_output=True, text=True)
        assert expected in done.stdout
        assert done.stdout.endswith("False\n")
