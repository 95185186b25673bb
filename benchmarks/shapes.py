"""Models of a given shape with random weights, for the other benchmarks."""

from __future__ import annotations

import tempfile
from typing import Any

import torch
import transformers
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Transformer
from sentence_transformers.sentence_transformer.modules import Pooling
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace

LONGEST = 8192


def random_model(
    config_class: str, pooling: str, sizes: dict[str, Any], dtype: torch.dtype, device: str
) -> SentenceTransformer:
    """A SentenceTransformer around a random model; its tokenizer makes one token of every word."""
    torch.manual_seed(0)
    config = getattr(transformers, config_class)(
        **{"vocab_size": 1000, "max_position_embeddings": LONGEST + 2, "pad_token_id": 0, **sizes}
    )
    vocabulary = Tokenizer(WordLevel({"[PAD]": 0, "[UNK]": 1, "word": 2}, unk_token="[UNK]"))
    vocabulary.pre_tokenizer = Whitespace()
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=vocabulary, pad_token="[PAD]", unk_token="[UNK]", model_max_length=LONGEST
    )
    with tempfile.TemporaryDirectory() as folder:
        transformers.AutoModel.from_config(config).to(dtype).save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        transformer = Transformer(folder, model_kwargs={"dtype": dtype, "attn_implementation": "sdpa"})
    transformer.processor = tokenizer
    return SentenceTransformer(modules=[transformer, Pooling(sizes["hidden_size"], pooling)], device=device).eval()
