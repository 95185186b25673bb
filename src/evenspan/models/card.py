"""The model card of a saved calibrated model; the card that the model would have without its calibration stands beside it."""

from __future__ import annotations

import inspect
import os
import re
from pathlib import Path
from typing import Any

from evenspan.models.files import CARD, PLAIN_CARD
from evenspan.models.setting import Setting

_KEPT = ("language", "license", "license_name", "license_link")  # of the plain model's metadata: true of both
_TAGS = [
    "sentence-transformers",
    "sentence-similarity",
    "feature-extraction",
    "evenspan",
    "position-fair",
    "custom_code",
]
_CITATION = "## Citation"
_TEXT = """
# {title}: position-fair embeddings

This is {base} with an [evenspan](https://pypi.org/project/evenspan) calibration. While documents are encoded, the attention of
the pooling token is spread more evenly over the passage, so that content near its end counts. The weights and the vectors of
queries are those of the plain model.

## Usage

```bash
pip install evenspan
```

```python
import evenspan

model = evenspan.load("{name}"){comment}
documents = model.encode_document(["A first passage.", "A second one."])  # calibrated
queries = model.encode_query(["a question"])  # plain
print(model.similarity(queries, documents))
```

{bare}

Libraries that take the name of a model load it where evenspan is installed, with a flag:

```python
from sentence_transformers import SentenceTransformer

model = SentenceTransformer("{name}", trust_remote_code=True){comment}
```

sentence-transformers asks for the flag because the module's class is not its own: it belongs to evenspan. There is no code in
these files, and none is run. `AutoModel` and servers that read `config.json` refuse this model, because they would load it
without its calibration. The plain model: `evenspan.restore(model).save_pretrained("plain")`.

## Calibration

`{calibration}`, on every call of `encode_document`. Read it with `evenspan.calibration_of(model)`.

{citation}

```bibtex
@article{{michail2026attention,
  title = {{Attention Calibration for Position-Fair Dense Information Retrieval}},
  author = {{Michail, Andrianos and Schuhmacher, Elias and Opitz, Juri and Clematide, Simon and Sennrich, Rico}},
  journal = {{arXiv preprint arXiv:2606.02737}},
  year = {{2026}},
  url = {{https://arxiv.org/abs/2606.02737}}
}}
```

The card of the plain model: [{plain}]({plain}).
"""
_BARE = {
    None: 'A bare `encode()` is plain, unless `task="document"` is passed.',
    "document": (
        "A bare `encode()` encodes documents, calibrated, unless it is given a prompt that is not one of the document's. For "
        'queries use `encode_query`, or pass `task="query"`.'
    ),
}


def write_card(setting: Setting, base: str, call: inspect.BoundArguments) -> None:
    """Put a card of the calibrated model in the place of the plain one's, if there is one.

    `base` is the folder or the name of the model that was calibrated, and `call` the call of `save` that wrote it.
    """
    call.apply_defaults()
    folder, repository = Path(call.arguments["path"]), call.arguments["model_name"]
    if repository is not None and Path(repository).exists():
        repository = None
    card, plain = folder / CARD, folder / PLAIN_CARD
    if not card.exists():
        return
    if call.arguments["create_model_card"] or not plain.exists():  # else the card there is an earlier one of ours
        card.replace(plain)
    text = _TEXT.format(
        title=Path(repository or folder.resolve()).name,
        base=_linked(base),
        name=repository or ".",
        comment="" if repository else "  # this folder; or its name on the hub",
        bare=_BARE[setting.default_task],
        calibration=setting.calls.calibration,
        citation=_CITATION,
        plain=PLAIN_CARD,
    )
    metadata = _metadata(plain.read_text(encoding="utf-8"), base)
    card.write_text(f"---\n{metadata}\n---\n{text}", encoding="utf-8")


def add_section(folder: Path, title: str, text: str) -> None:
    """Add a section to the card of a saved calibrated model, before its citation."""
    card = folder / CARD
    front, citation, rest = card.read_text(encoding="utf-8").partition(_CITATION)
    card.write_text(f"{front}## {title}\n\n{text}\n\n{citation}{rest}", encoding="utf-8")


def _on_hub(name: str) -> bool:
    return re.fullmatch(r"[\w.-]+/[\w.-]+", name) is not None and not os.path.isdir(name)


def _linked(base: str) -> str:
    if _on_hub(base):
        return f"[{base}](https://huggingface.co/{base})"
    name = Path(base).name  # where it lies is nobody's business
    return f"`{name}`" if name else "a sentence-transformers model"


def _metadata(plain_card: str, base: str) -> str:
    from huggingface_hub import ModelCard, ModelCardData
    from yaml import YAMLError  # type: ignore[import-untyped]

    try:
        known: dict[str, Any] = ModelCard(plain_card, ignore_metadata_errors=True).data.to_dict()  # type: ignore[no-untyped-call]
    except (ValueError, YAMLError):  # no metadata that can be read
        known = {}
    kept: dict[str, Any] = {name: known[name] for name in _KEPT if name in known}
    if _on_hub(base):
        kept["base_model"] = base
    data = ModelCardData(library_name="sentence-transformers", pipeline_tag="sentence-similarity", tags=_TAGS, **kept)
    return data.to_yaml()
