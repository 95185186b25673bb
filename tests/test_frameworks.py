"""The snippets of the documentation run, and what they call calibrated is calibrated and what they call plain is plain."""

from __future__ import annotations

import re

import numpy as np
import pytest
from helpers import indexes, tiny
from helpers.paths import DOCS

import evenspan

SNIPPETS = dict(
    re.findall(
        r"^## (\w+)\n.*?^```python\n(.*?)^```", (DOCS / "frameworks.md").read_text("utf-8"), re.DOTALL | re.MULTILINE
    )
)
PACKAGES = {
    "LangChain": "langchain_huggingface",
    "LlamaIndex": "llama_index.embeddings.huggingface",
    "Haystack": "haystack_integrations.components.embedders.sentence_transformers",
    "Chroma": "chromadb",
    "Qdrant": "qdrant_client",
}


@pytest.mark.parametrize("name", PACKAGES)
@pytest.mark.filterwarnings("ignore")
def test_framework(name, tmp_path) -> None:
    try:
        __import__(PACKAGES[name])
    except ImportError:
        pytest.skip(f"{PACKAGES[name]} is not installed")
    folder = str(tmp_path / "model")
    tiny.sentence_transformer("xlm-roberta-cls", tmp_path / "base").save_pretrained(folder)
    names = {"passages": [tiny.text(200), tiny.text(150)], "questions": [tiny.text(140, seed=3)]}
    exec(compile(SNIPPETS[name].replace("BAAI/bge-m3", folder), "frameworks.md", "exec"), names)
    model = evenspan.load(folder, device="cpu")
    # LlamaIndex puts its instruction in front.
    asked = f"query: {names['questions'][0]}" if name == "LlamaIndex" else names["questions"][0]
    plain = model.encode([*names["passages"], asked])
    calibrated = evenspan.calibrate(model).encode_document(names["passages"])
    assert np.abs(plain[:2] - calibrated).max() > 1e-3
    np.testing.assert_allclose(np.array(names["vectors"]), calibrated, atol=1e-5)
    np.testing.assert_allclose(np.array(names["question"]), plain[2], atol=1e-5)


def test_every_snippet_is_tested() -> None:
    assert set(SNIPPETS) == set(PACKAGES)


def test_the_page_on_indexing(tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    page = (DOCS / "indexing.md").read_text("utf-8")
    (code,) = re.findall(r"^```python\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    indexes.write_jsonl(tmp_path / "corpus.jsonl", indexes.rows(60))
    exec(compile(code.replace("BAAI/bge-m3", indexes.saved_model(tmp_path)), "indexing.md", "exec"), {})
    assert "added      60" in capsys.readouterr().out
