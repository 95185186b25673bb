"""Models that retrieve without training: a document's vector is the mean of its words' random vectors, even or front-loaded."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Normalize, Transformer
from sentence_transformers.sentence_transformer.modules import Pooling
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from tokenizers.processors import TemplateProcessing
from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

from helpers.tiny import SPECIAL

VOCABULARY, WIDTH, TOKENS = 2000, 128, 320


def reader(folder: Path, bias: float = 0.0) -> SentenceTransformer:
    """One layer whose pooling token looks at every token alike, or with a bias more at those in front: e^bias times as much."""
    torch.manual_seed(5)
    sizes: dict[str, Any] = {
        "hidden_size": WIDTH,
        "num_hidden_layers": 1,
        "num_attention_heads": 1,
        "intermediate_size": 4,
    }
    config = BertConfig(
        vocab_size=VOCABULARY + len(SPECIAL),
        max_position_embeddings=TOKENS,
        pad_token_id=1,
        attn_implementation="sdpa",
        **sizes,
    )
    model = BertModel(config, add_pooling_layer=False).eval()
    layer, embeddings = model.encoder.layer[0], model.embeddings
    attention = layer.attention.self
    words = torch.randn(config.vocab_size, WIDTH)
    words[:, 0] = 0  # where positions are
    with torch.no_grad():
        for parameter in (p for name, p in model.named_parameters() if "LayerNorm" not in name):
            parameter.zero_()
        embeddings.word_embeddings.weight.copy_(words)
        embeddings.position_embeddings.weight[:, 0] = torch.linspace(1, -1, TOKENS)
        attention.query.bias[0] = bias * WIDTH**0.5 / 2
        attention.key.weight[0, 0] = 1
        for identity in (attention.value, layer.attention.output.dense):
            identity.weight.copy_(10 * torch.eye(WIDTH))  # so that little is left of the pooling token itself
            identity.weight[0, 0] = 0
    model.save_pretrained(folder)
    _tokenizer().save_pretrained(folder)
    transformer = Transformer(str(folder), max_seq_length=TOKENS)
    return SentenceTransformer(modules=[transformer, Pooling(WIDTH, "cls"), Normalize()], device="cpu")


def documents(count: int = 60, sentences: int = 30, words: int = 8, seed: int = 0) -> list[str]:
    """Texts of random words in sentences."""
    pick = random.Random(seed)
    return [
        " ".join(" ".join(f"W{pick.randrange(VOCABULARY)}" for _ in range(words)) + "." for _ in range(sentences))
        for _ in range(count)
    ]


def _tokenizer() -> PreTrainedTokenizerFast:
    vocabulary = {word: index for index, word in enumerate([*SPECIAL, *(f"W{number}" for number in range(VOCABULARY))])}
    backend = Tokenizer(WordLevel(vocabulary, unk_token="<unk>"))
    backend.pre_tokenizer = Whitespace()
    backend.post_processor = TemplateProcessing(single="<s> $A </s>", special_tokens=[("<s>", 0), ("</s>", 2)])
    names = {"cls_token": "<s>", "pad_token": "<pad>", "sep_token": "</s>", "unk_token": "<unk>"}
    return PreTrainedTokenizerFast(tokenizer_object=backend, model_max_length=TOKENS, **names)
