"""Saving and loading: the calibration travels with the model, and is never lost in silence."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest
import transformers
from helpers.paths import ORACLE
from helpers.tiny import text
from sentence_transformers import SentenceTransformer

import evenspan
from evenspan import Calibration
from evenspan.identity import weights_digest
from evenspan.models.gte import native_config

SETTING = Calibration("uniform", strength=0.8, layers=(1, 3), basket_size=16)
LONG = [text(words, seed=3) for words in (150, 40)]
needs_gte = pytest.mark.skipif(
    not hasattr(transformers, "GteModel"), reason=f"transformers {transformers.__version__} has no native gte"
)


@pytest.mark.parametrize("default_task", [None, "document"])
@pytest.mark.parametrize("fixture", ["cls_model", "last_model"])
def test_round_trip(fixture, default_task, request, tmp_path) -> None:
    model = request.getfixturevalue(fixture)
    model.prompts["query"] = "w1 w2 w3 "
    evenspan.calibrate(model, SETTING, default_task=default_task)
    model.save_pretrained(str(tmp_path / "saved"))
    loaded = evenspan.load(tmp_path / "saved", device="cpu")
    assert evenspan.calibration_of(loaded) == SETTING
    assert loaded.prompts == model.prompts
    for encode in ("encode_document", "encode_query", "encode"):
        np.testing.assert_array_equal(getattr(loaded, encode)(LONG), getattr(model, encode)(LONG))
    # Where it came from is the folder it was loaded from, and no temporary one.
    assert loaded[0].auto_model.config._name_or_path == str(tmp_path / "saved")
    assert "evenspan-" not in loaded.tokenizer.name_or_path
    loaded.save_pretrained(str(tmp_path / "again"))
    np.testing.assert_array_equal(
        evenspan.load(tmp_path / "again", device="cpu").encode_document(LONG), model.encode_document(LONG)
    )


def test_sentence_transformers_refuses_a_calibrated_folder_without_the_flag(cls_model, tmp_path) -> None:
    evenspan.calibrate(cls_model, SETTING).save_pretrained(str(tmp_path))
    with pytest.raises(ValueError, match=r"evenspan.models.CalibratedTransformer"):
        SentenceTransformer(str(tmp_path))


def test_a_restored_model_saves_as_a_plain_one(cls_model, tmp_path) -> None:
    plain = cls_model.encode(LONG)
    evenspan.restore(evenspan.calibrate(cls_model, SETTING)).save_pretrained(str(tmp_path))
    np.testing.assert_array_equal(SentenceTransformer(str(tmp_path), device="cpu").encode(LONG), plain)
    loaded = evenspan.load(tmp_path, device="cpu")
    assert evenspan.calibration_of(loaded) is None
    np.testing.assert_array_equal(loaded.encode_document(LONG), plain)


def test_options_reach_sentence_transformers(cls_model, tmp_path) -> None:
    evenspan.calibrate(cls_model, SETTING).save_pretrained(str(tmp_path))
    loaded = evenspan.load(tmp_path, device="cpu", truncate_dim=8, model_kwargs={"attn_implementation": "eager"})
    assert loaded.encode_document(LONG).shape == (2, 8)
    assert evenspan.inspect_model(loaded).attention == "eager"


def test_calibrations_of_other_models_in_subfolders_are_not_taken(cls_model, tmp_path) -> None:
    evenspan.calibrate(cls_model, Calibration(strength=0.1)).save_pretrained(str(tmp_path / "checkpoint-500"))
    evenspan.calibrate(cls_model, SETTING).save_pretrained(str(tmp_path))
    assert evenspan.calibration_of(evenspan.load(tmp_path, device="cpu")) == SETTING


def test_a_trainer_can_read_its_checkpoints(cls_model, tmp_path) -> None:
    """The trainer loads a checkpoint with the classes of the model in memory, and takes its weights."""
    if not hasattr(SentenceTransformer, "_load_with_module_classes"):
        pytest.skip("this sentence-transformers reads checkpoints otherwise")
    evenspan.calibrate(cls_model, SETTING).save_pretrained(str(tmp_path))
    classes = {"evenspan.models.CalibratedTransformer": type(cls_model[0])}
    loaded = type(cls_model)._load_with_module_classes(str(tmp_path), classes, device="cpu")
    np.testing.assert_array_equal(loaded.encode(LONG), cls_model.encode(LONG))


def test_a_missing_calibration_file_is_an_error(cls_model, tmp_path) -> None:
    evenspan.calibrate(cls_model, SETTING).save_pretrained(str(tmp_path))
    (tmp_path / "evenspan.json").unlink()
    with pytest.raises(FileNotFoundError, match=r"evenspan.json"):
        evenspan.load(tmp_path, device="cpu")


def test_a_setting_of_a_newer_version_is_an_error(cls_model, tmp_path) -> None:
    evenspan.calibrate(cls_model, SETTING).save_pretrained(str(tmp_path))
    saved = json.loads((tmp_path / "evenspan.json").read_text())
    saved["calibration"]["temperature"] = 2
    (tmp_path / "evenspan.json").write_text(json.dumps(saved))
    with pytest.raises(ValueError, match="temperature"):
        evenspan.load(tmp_path, device="cpu")


def test_other_kinds_of_encoders_are_not_converted(cls_model, tmp_path) -> None:
    cls_model.save_pretrained(str(tmp_path))
    file = tmp_path / "config_sentence_transformers.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "model_type": "SparseEncoder"}))
    with pytest.raises(ValueError, match="is a SparseEncoder"):
        evenspan.load(tmp_path)


def test_folders_that_are_not_there() -> None:
    with pytest.raises(FileNotFoundError, match=r"'\./nowhere' is neither a model folder"):
        evenspan.load("./nowhere")
    with pytest.raises(OSError, match="no such model on the hub or in the local cache"):
        evenspan.load("nobody/no-such-model")


@needs_gte
def test_gte_as_published_loads_without_remote_code(tmp_path) -> None:
    """In a process of its own, with nobody at the keyboard: no question may be asked, no remote code looked for."""
    script = (
        "import sys, evenspan\n"
        "model = evenspan.load(sys.argv[1], device='cpu', trust_remote_code=True)\n"
        "print(type(model[0].auto_model).__module__)\n"
        "evenspan.calibrate(model, evenspan.Calibration(basket_size=16)).save_pretrained(sys.argv[2])\n"
    )
    command = [sys.executable, "-c", script, str(ORACLE / "gte-new"), str(tmp_path / "native")]
    done = subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "HF_HUB_OFFLINE": "1"},
    )
    assert done.stdout.strip() == "transformers.models.gte.modeling_gte"
    saved = json.loads((tmp_path / "native" / "config.json").read_text())["evenspan"]["config"]
    assert saved["model_type"] == "gte"
    assert "auto_map" not in saved
    published, native = (
        evenspan.load(ORACLE / "gte-new", device="cpu"),
        evenspan.load(tmp_path / "native", device="cpu"),
    )
    evenspan.calibrate(published, Calibration(basket_size=16))
    texts = ["w1 " * 100, "w2 w3"]
    np.testing.assert_allclose(native.encode_document(texts), published.encode_document(texts), atol=1e-6)


@needs_gte
@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"position_embedding_type": "absolute"}, "position_embedding_type is 'absolute'"),
        ({"layer_norm_type": "rms_norm"}, "layer_norm_type"),
        ({"rope_scaling": {"type": "yarn", "factor": 2.0}}, "unknown rope scaling"),
    ],
)
def test_gte_checkpoints_that_differ_are_refused(change, says) -> None:
    config = json.loads((ORACLE / "gte-new" / "config.json").read_text())
    with pytest.raises(ValueError, match=says):
        native_config({**config, **change})


@needs_gte
def test_gte_without_rope_scaling() -> None:
    config = json.loads((ORACLE / "gte-new" / "config.json").read_text())
    native = native_config({**config, "rope_scaling": None})
    assert native["rope_parameters"] == {"rope_type": "default", "rope_theta": 20000.0}


def test_without_native_gte_the_error_names_the_version(monkeypatch) -> None:
    config = json.loads((ORACLE / "gte-new" / "config.json").read_text())
    monkeypatch.setitem(sys.modules, "transformers", SimpleNamespace(__version__="5.17.0"))
    with pytest.raises(ImportError, match=r"transformers >= 5\.18"):
        native_config(config)


def test_hub_models_are_downloaded_without_code_or_pickles(cls_model, tmp_path, monkeypatch) -> None:
    """A calibrated model on the hub: the same folder, reached through huggingface_hub."""
    import huggingface_hub

    evenspan.calibrate(cls_model, SETTING).save_pretrained(str(tmp_path / "repo"))
    asked: dict[str, object] = {}

    def hf_hub_download(name, file, **options):
        path = tmp_path / "repo" / file
        if not path.exists():
            raise huggingface_hub.errors.EntryNotFoundError("404")
        return str(path)

    def snapshot_download(name, **options):
        asked.update(options, name=name)
        return str(tmp_path / "repo")

    monkeypatch.setattr(huggingface_hub, "hf_hub_download", hf_hub_download)
    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot_download)
    loaded = evenspan.load("someone/fair", device="cpu", cache_folder="cache", revision="abc", token="secret")
    assert evenspan.calibration_of(loaded) == SETTING
    assert {asked[key] for key in ("name", "cache_dir", "revision", "token")} == {
        "someone/fair",
        "cache",
        "abc",
        "secret",
    }
    assert not {"*", "*.py", "*.bin", "*.pt"} & set(asked["allow_patterns"])
    assert loaded[0].auto_model.config._name_or_path == "someone/fair"


def test_weights_that_a_checkpoint_lacks_are_the_same_in_every_load() -> None:
    """The oracle's xlm-roberta has no pooler: what nobody reads must not make it another model each time."""
    first, second = (weights_digest(evenspan.load(ORACLE / "xlmr", device="cpu")) for _ in range(2))
    assert first == second
