"""A calibrated model on the hub: pushed, private and to a branch, found there, and loaded with its calibration."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from helpers import hub, tiny

import evenspan
from evenspan import Calibration

SETTING = Calibration("uniform", strength=0.8, layers=(1, 3), basket_size=16)
# In a process of its own: huggingface_hub reads where the hub is, and whether it may be reached, when it is imported.
PUSH = """
import sys, evenspan
model = evenspan.load(sys.argv[1], device="cpu")
print(model.push_to_hub("someone/fair", private=True, revision="calibrated"))
"""
LOAD = """
import json, sys, evenspan
from sentence_transformers import SentenceTransformer
from transformers import AutoConfig, AutoModel

where = {"revision": "calibrated", "device": "cpu"}
for load in (evenspan.load, lambda name, **where: SentenceTransformer(name, trust_remote_code=True, **where)):
    model = load("someone/fair", **where)
    print(json.dumps([str(evenspan.calibration_of(model)), model[0].model.config._name_or_path,
        [encode(["w1 " * 90]).tolist() for encode in (model.encode_document, model.encode_query)]]))
for auto in (AutoConfig, AutoModel):
    try:
        auto.from_pretrained("someone/fair", revision="calibrated")
        print("plain")
    except ValueError as error:
        print("refused" if "calibrated_load_with_evenspan" in str(error) else error)
"""


def run(script: str, *arguments: str, home: Path, url: str) -> list[str]:
    options = {"HF_HUB_OFFLINE": "0", "HF_ENDPOINT": url, "HF_TOKEN": "hf_secret", "HF_HOME": str(home)}
    command = [sys.executable, "-W", "ignore", "-c", script, *arguments]
    environment = {**os.environ, **options, "HF_HUB_DISABLE_XET": "1", "HF_HUB_DISABLE_TELEMETRY": "1"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False, timeout=600)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "hf_secret" not in done.stdout + done.stderr
    return done.stdout.splitlines()


@pytest.fixture
def model(tmp_path):
    model = tiny.sentence_transformer("xlm-roberta-cls", tmp_path / "base", prompts={"query": "w1 w2 w3 "})
    evenspan.calibrate(model, SETTING).save_pretrained(str(tmp_path / "fair"))
    return model


def test_a_model_is_pushed_and_loaded(model, tmp_path) -> None:
    with hub.serving() as server:
        (url,) = run(PUSH, str(tmp_path / "fair"), home=tmp_path / "home", url=server.url)
        repository = server.repositories["someone/fair"]
        files = repository["branches"]["calibrated"]
        # The server saw a private repository and a branch of its own.
        assert repository["private"] is True
        assert repository["branches"]["main"] == {}
        assert url.startswith(f"{server.url}/someone/fair/commit/")
        assert {"evenspan.json", "config.json", "modules.json", "README.md", "README_plain_model.md"} <= files.keys()
        assert json.loads(files["evenspan.json"])["calibration"] == SETTING.to_dict()
        assert json.loads(files["config.json"])["model_type"] == "calibrated_load_with_evenspan"
        assert not any(name.endswith((".py", ".bin", ".pt", ".pkl")) for name in files)
        card = files["README.md"].decode()
        assert "\n# fair: position-fair embeddings\n" in card
        assert 'evenspan.load("someone/fair")\n' in card
        assert str(tmp_path) not in card
        # Somebody else's cache: everything comes from the hub.
        *loaded, first, second = run(LOAD, home=tmp_path / "another home", url=server.url)
    expected = [encode(["w1 " * 90]).tolist() for encode in (model.encode_document, model.encode_query)]
    for line in loaded:
        assert json.loads(line) == [str(SETTING), "someone/fair", expected]
    assert len(loaded) == 2
    assert (first, second) == ("refused", "refused")
