"""The snippets of docs/serving.md against a real server: what they call calibrated is, and what they call plain is plain.

Those of frameworks run where these are installed (`make test-frameworks`).
"""

from __future__ import annotations

import json
import re
import subprocess

import numpy as np
import pytest
from helpers import tiny
from helpers.paths import DOCS

PAGE = (DOCS / "serving.md").read_text("utf-8")
SECTIONS = dict(re.findall(r"^## ([^\n]+)\n(.*?)(?=^## |\Z)", PAGE, re.DOTALL | re.MULTILINE))
PACKAGES = {
    "OpenAI": "openai",
    "Cohere": "cohere",
    "LangChain": "langchain_openai",
    "LlamaIndex": "llama_index.embeddings.openai_like",
    "Haystack": "haystack",
    "Chroma": "chromadb",
    "Qdrant": "qdrant_client",
}


def here(code: str, server) -> str:
    return code.replace("http://localhost:8000", server.url).replace("BAAI/bge-m3", "tiny-model")


@pytest.mark.parametrize("name", PACKAGES)
@pytest.mark.filterwarnings("ignore")
def test_snippet(name, server, model) -> None:
    try:
        __import__(PACKAGES[name])
    except ImportError:
        pytest.skip(f"{PACKAGES[name]} is not installed")
    (code,) = re.findall(r"^```python\n(.*?)^```", SECTIONS[name], re.DOTALL | re.MULTILINE)
    names = {"passages": [tiny.text(200), tiny.text(150)], "questions": [tiny.text(140, seed=3)]}
    exec(compile(here(code, server), "serving.md", "exec"), names)
    for left_open in {"client", "server"} & names.keys():
        own = names[left_open]
        if hasattr(own, "close"):
            own.close()
        elif hasattr(own, "__exit__"):
            own.__exit__(None, None, None)
    calibrated = model.encode_document([*names["passages"], names["questions"][0]])
    # The question is long enough to be calibrated, and is not.
    np.testing.assert_allclose(np.array(names["vectors"]), calibrated[:2], atol=1e-5)
    np.testing.assert_allclose(np.array(names["question"]), model.encode_query(names["questions"][0]), atol=1e-5)
    assert np.abs(np.array(names["question"]) - calibrated[2]).max() > 1e-3


def test_every_snippet_is_tested() -> None:
    assert {name for name, section in SECTIONS.items() if "```python" in section} == set(PACKAGES)


def test_curl(server, model) -> None:
    (command,) = re.findall(r"^```bash\n(curl .*?)^```", SECTIONS["curl"], re.DOTALL | re.MULTILINE)
    done = subprocess.run(["bash", "-c", here(command, server)], capture_output=True, check=True, timeout=60)
    found = [one["embedding"] for one in json.loads(done.stdout)["data"]]
    np.testing.assert_allclose(found, model.encode_document(["A passage.", "Another one."]), atol=1e-5)


def test_the_servers_commands_are_understood() -> None:
    """As far as can be told without a model."""
    from evenspan.cli import _ROOT

    lines = re.findall(r"evenspan serve (.*)$", PAGE, re.MULTILINE)
    assert len(lines) == 3
    for line in lines:
        _ROOT.commands["serve"].make_context("serve", line.split(), parent=_ROOT.context_class(_ROOT, info_name="x"))
