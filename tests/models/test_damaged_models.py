"""What goes wrong when a model is loaded is one line that names the file, the name or the device, and a way out."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from helpers import tiny

import evenspan
from evenspan import Calibration

WEIGHTS = "model.safetensors"
SETTING = Calibration(basket_size=16)


@pytest.fixture(scope="module")
def saved(tmp_path_factory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("models")
    model = tiny.sentence_transformer("bert-cls", root / "built")
    model.save_pretrained(str(root / "plain"))
    evenspan.calibrate(model, SETTING).save_pretrained(str(root / "calibrated"))
    return {kind: root / kind for kind in ("plain", "calibrated")}


def without(key: str) -> bytes:
    return json.dumps([{"idx": 0, "name": "0", "path": "", "type": "a.B", key: None}]).encode()


DAMAGE = [
    (WEIGHTS, None, OSError, "is damaged .*header.*: save or download the model again"),  # truncated
    (WEIGHTS, b"garbage" * 100, OSError, "is damaged"),
    (WEIGHTS, b"", OSError, "is damaged"),
    ("config.json", b"{broken", ValueError, "is damaged"),
    ("config.json", b"\xff\xfe\x00", ValueError, "is damaged"),
    ("config.json", b"[1]", ValueError, r"should hold an object, not \[1\]"),
    ("config_sentence_transformers.json", b"{", ValueError, "is damaged"),
    ("tokenizer_config.json", b"garbage", ValueError, "is damaged"),
    ("1_Pooling/config.json", b"garbage", ValueError, "is damaged"),
    ("modules.json", b"[", ValueError, "is damaged"),
    ("modules.json", b"{}", ValueError, "should hold a list"),
    ("modules.json", b"[]", ValueError, "without path and type"),
    ("modules.json", b'["a"]', ValueError, "without path and type"),
    ("modules.json", without("path"), ValueError, "names a module without path"),
    ("modules.json", without("type"), ValueError, "names a module without type"),
]
CALIBRATION_DAMAGE = [
    ("{", "is damaged"),
    ("[]", "should hold an object"),
    ("{}", "has no 'default_task'"),
    ('{"default_task": "query", "calibration": {}}', "default_task is 'query'"),
    ('{"default_task": null, "calibration": 3}', "contains no readable calibration"),
    ('{"default_task": null, "calibration": {"strength": 2}}', r"strength must lie in \[0, 1\]"),
]


@pytest.mark.parametrize("kind", ["plain", "calibrated"])
@pytest.mark.parametrize(("file", "content", "error", "says"), DAMAGE)
def test_damaged_files_are_named(saved, tmp_path, kind, file, content, error, says) -> None:
    folder = shutil.copytree(saved[kind], tmp_path / "model")
    path = folder / file
    path.write_bytes(path.read_bytes()[:3000] if content is None else content)
    with pytest.raises(error, match=says) as raised:
        evenspan.load(folder, device="cpu")
    assert str(path) in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(("content", "says"), CALIBRATION_DAMAGE)
def test_a_damaged_calibration_is_named(saved, tmp_path, content, says) -> None:
    folder = shutil.copytree(saved["calibrated"], tmp_path / "model")
    (folder / "evenspan.json").write_text(content)
    with pytest.raises(ValueError, match=f"evenspan.json.*{says}"):
        evenspan.load(folder, device="cpu")


def test_errors_name_the_folder_and_no_temporary_one(saved, tmp_path) -> None:
    folder = shutil.copytree(saved["calibrated"], tmp_path / "model")
    (folder / WEIGHTS).unlink()
    with pytest.raises(OSError, match=f"found in directory {folder}"):
        evenspan.load(folder, device="cpu")


def test_names_without_a_model(tmp_path) -> None:
    for name in ("./nope", "a/b/c", "no such model", "", str(tmp_path / "nope")):
        with pytest.raises(FileNotFoundError, match=f"'{name}' is neither a model folder"):
            evenspan.load(name)
    for name in ("nope", "nobody/nope"):
        with pytest.raises(OSError, match=f"Cannot load '{name}': there is no such folder, .* in the local cache"):
            evenspan.load(name)
    with pytest.raises(FileNotFoundError, match=r"contains no model: it has no modules\.json or config\.json"):
        evenspan.load(tmp_path)


@pytest.mark.parametrize("device", ["banana", "cuda:x", "cuda:99", "mps:7", 99])
def test_devices_that_are_not_there(saved, device) -> None:
    with pytest.raises(ValueError, match=f"Cannot use device '{device}': .*Devices here: cpu"):
        evenspan.load(saved["plain"], device=device)
    with pytest.raises(ValueError, match="Devices here: cpu"):
        evenspan.miniature("cls", device=device)


def test_both_names_of_the_calibrated_class_load(saved, tmp_path) -> None:
    """The path in modules.json is chosen for good; folders from before it was have another."""
    folder = shutil.copytree(saved["calibrated"], tmp_path / "model")
    modules = folder / "modules.json"
    assert '"evenspan.models.CalibratedTransformer"' in modules.read_text()
    modules.write_text(modules.read_text().replace("evenspan.models.Cal", "evenspan.modules.Cal"))
    for path in (saved["calibrated"], folder):
        assert evenspan.calibration_of(evenspan.load(path, device="cpu")) == SETTING
