"""Tiny random models, one for each architecture, built on the spot."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Normalize, Transformer
from sentence_transformers.sentence_transformer.modules import Pooling
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from tokenizers.processors import TemplateProcessing
from transformers import PreTrainedTokenizerFast

from evenspan import Calibration

SPECIAL = ["<s>", "<pad>", "</s>", "<unk>"]
WORDS = 100
SIZES: dict[str, Any] = {
    "vocab_size": WORDS + len(SPECIAL),
    "hidden_size": 32,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "max_position_embeddings": 300,
    "initializer_range": 0.3,
    "bos_token_id": 0,
    "pad_token_id": 1,
    "eos_token_id": 2,
}
DECODER = {"num_key_value_heads": 2, "head_dim": 8}


@dataclass(frozen=True)
class Architecture:
    """One row of the table: how to build the model, how it is pooled, and which layers see the whole passage."""

    name: str
    config: Callable[[], Any]
    pooling: str
    full: tuple[int, ...] = (0, 1, 2, 3)
    attention: str = "sdpa"
    padding: str = "right"

    def __str__(self) -> str:
        return f"{self.name}-{self.pooling}"

    def takes(self, setting: Calibration) -> bool:
        """Whether a setting is one for this pooling."""
        return self.pooling != "mean" or (setting.variant == "soft" and setting.first_token is None)

    def build(self) -> torch.nn.Module:
        if not hasattr(transformers, f"{self.config_class}"):
            pytest.skip(f"transformers {transformers.__version__} has no {self.config_class}")
        torch.manual_seed(7)
        config = self.config()
        config._attn_implementation = self.attention
        return transformers.AutoModel.from_config(config, attn_implementation=self.attention).eval()

    @property
    def config_class(self) -> str:
        return self.config.__doc__ or ""


def row(name: str, config_class: str, pooling: str = "cls", **options: Any) -> Architecture:
    fields = {key: options.pop(key) for key in ("full", "attention", "padding") if key in options}
    # Some configs take no initializer range or name it otherwise; sizes that matter are set for all.
    kept = {**SIZES, **options}

    def build() -> Any:
        return getattr(transformers, config_class)(**kept)

    build.__doc__ = config_class
    return Architecture(name, build, pooling, **fields)


MIXED = ["sliding_attention", "full_attention", "sliding_attention", "full_attention"]
ARCHITECTURES = [
    row("bert", "BertConfig"),
    row("bert-decoder", "BertConfig", "lasttoken", is_decoder=True),
    row("roberta", "RobertaConfig"),
    row("xlm-roberta", "XLMRobertaConfig"),
    row("distilbert", "DistilBertConfig", dim=32, n_layers=4, n_heads=4, hidden_dim=48),
    row("modernbert", "ModernBertConfig", full=(1, 3), layer_types=MIXED, local_attention=32),
    row("nomic_bert", "NomicBertConfig"),
    row("eurobert", "EuroBertConfig", **DECODER),
    row("eurobert", "EuroBertConfig", "lasttoken", **DECODER),
    row("gte", "GteConfig", rope_parameters={"rope_type": "linear", "rope_theta": 16e4, "factor": 1.1}),
    row("qwen2", "Qwen2Config", "lasttoken", num_key_value_heads=2, padding="left"),
    row("qwen3", "Qwen3Config", "lasttoken", padding="left", **DECODER),
    row("llama", "LlamaConfig", "lasttoken", **DECODER),
    row("mistral", "MistralConfig", "lasttoken", sliding_window=None, **DECODER),
    row(
        "gemma2",
        "Gemma2Config",
        "lasttoken",
        full=(1, 3),
        layer_types=MIXED,
        sliding_window=16,
        attn_logit_softcapping=2.0,  # low enough to bite
        query_pre_attn_scalar=8,
        attention="eager",  # sdpa cannot cap
        padding="left",
        **DECODER,
    ),
    row(
        "gemma3",
        "Gemma3TextConfig",
        "lasttoken",
        full=(1, 3),
        layer_types=MIXED,
        sliding_window=16,
        query_pre_attn_scalar=8,
        **DECODER,
    ),
    row(
        "exaone4",
        "Exaone4Config",
        "lasttoken",
        full=(1, 3),
        layer_types=MIXED,
        sliding_window=16,  # which its full layers have noted too
        **DECODER,
    ),
    row("bert", "BertConfig", "mean"),
    row("xlm-roberta", "XLMRobertaConfig", "mean"),
    row("nomic_bert", "NomicBertConfig", "mean"),
    row("modernbert", "ModernBertConfig", "mean", full=(1, 3), layer_types=MIXED, local_attention=32),
    row(
        "gemma3",  # the shape of EmbeddingGemma
        "Gemma3TextConfig",
        "mean",
        full=(1, 3),
        layer_types=MIXED,
        sliding_window=16,
        use_bidirectional_attention=True,
        query_pre_attn_scalar=256,
        num_key_value_heads=1,
        head_dim=256,
    ),
]


def tokenizer(first_token: bool, padding: str = "right") -> PreTrainedTokenizerFast:
    vocabulary = {word: index for index, word in enumerate([*SPECIAL, *(f"w{number}" for number in range(WORDS))])}
    backend = Tokenizer(WordLevel(vocabulary, unk_token="<unk>"))
    backend.pre_tokenizer = Whitespace()
    template = "<s> $A </s>" if first_token else "$A </s>"
    backend.post_processor = TemplateProcessing(single=template, special_tokens=[("<s>", 0), ("</s>", 2)])
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        bos_token="<s>",
        cls_token="<s>",
        pad_token="<pad>",
        eos_token="</s>",
        sep_token="</s>",
        unk_token="<unk>",
        padding_side=padding,
        model_max_length=256,
    )


def sentence_transformer(
    architecture: Architecture | str, folder: Path, *, pooling: Any = None, prompts: dict[str, str] | None = None
) -> SentenceTransformer:
    """A SentenceTransformer around a tiny model, saved to and loaded from `folder` as real ones are."""
    if isinstance(architecture, str):
        architecture = next(entry for entry in ARCHITECTURES if str(entry) == architecture)
    pooling = pooling or architecture.pooling
    architecture.build().save_pretrained(folder)
    tokenizer(first_token=pooling != "lasttoken", padding=architecture.padding).save_pretrained(folder)
    transformer = Transformer(str(folder), model_kwargs={"attn_implementation": architecture.attention})
    model = SentenceTransformer(
        modules=[transformer, Pooling(SIZES["hidden_size"], pooling), Normalize()], device="cpu", prompts=prompts
    )
    # For some architectures transformers loads a tokenizer class of their own, which knows none of these words.
    transformer.processor = tokenizer(first_token=pooling != "lasttoken", padding=architecture.padding)
    assert len(model.preprocess(["w1 w2 w3"])["input_ids"][0]) >= 4
    return model


def text(words: int, seed: int = 0) -> str:
    numbers = torch.randint(WORDS, (words,), generator=torch.Generator().manual_seed(1000 * seed + words))
    return " ".join(f"w{number}" for number in numbers.tolist())


TEXTS = [text(words) for words in (3, 200, 40, 0, 97, 15, 130)]
