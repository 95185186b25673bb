"""The snippets of the documentation run, and what they call calibrated is calibrated and what they call plain is plain."""

from __future__ import annotations

import re
import shlex

import numpy as np
import pytest
from helpers import tiny
from helpers.paths import DOCS
from sentence_transformers import SentenceTransformer

import evenspan
from evenspan.cli import main

PAGE = (DOCS / "frameworks.md").read_text("utf-8")
SECTIONS = dict(re.findall(r"^## ([\w-]+)\n(.*?)(?=^## |\Z)", PAGE, re.DOTALL | re.MULTILINE))
PACKAGES = {
    "sentence-transformers": "sentence_transformers",
    "LangChain": "langchain_huggingface",
    "LlamaIndex": "llama_index.embeddings.huggingface",
    "Haystack": "haystack_integrations.components.embedders.sentence_transformers",
    "Chroma": "chromadb",
    "Qdrant": "qdrant_client",
}


@pytest.mark.parametrize("name", PACKAGES)
@pytest.mark.filterwarnings("ignore")
def test_framework(name, tmp_path, monkeypatch) -> None:
    try:
        __import__(PACKAGES[name])
    except ImportError:
        pytest.skip(f"{PACKAGES[name]} is not installed")
    folder = str(tmp_path / "model")
    tiny.sentence_transformer("xlm-roberta-cls", tmp_path / "base").save_pretrained(folder)
    monkeypatch.chdir(tmp_path)
    # A section has a command of its own, or the one at the top of the page.
    line = re.search(r"^```bash\nevenspan (.*)\n```", SECTIONS[name] + PAGE, re.MULTILINE)[1]
    assert main(shlex.split(line.replace("BAAI/bge-m3", folder))) == 0
    (code,) = re.findall(r"^```python\n(.*?)^```", SECTIONS[name], re.DOTALL | re.MULTILINE)
    names = {"passages": [tiny.text(200), tiny.text(150)], "questions": [tiny.text(140, seed=3)]}
    exec(compile(code, "frameworks.md", "exec"), names)
    model = SentenceTransformer(folder, device="cpu")
    plain, question = model.encode(names["passages"]), names["questions"][0]
    calibrated = evenspan.calibrate(model).encode_document([*names["passages"], question])
    # The passages are calibrated, and the question, which is long enough to be, is not.
    assert np.abs(plain - calibrated[:2]).max() > 1e-3
    np.testing.assert_allclose(np.array(names["vectors"]), calibrated[:2], atol=1e-5)
    assert np.abs(np.array(names["question"]) - calibrated[2]).max() > 1e-3
    np.testing.assert_allclose(np.array(names["question"]), model.encode_query(question), atol=1e-5)


def test_every_snippet_is_tested() -> None:
    assert {name for name, section in SECTIONS.items() if "```python" in section} == set(PACKAGES)
