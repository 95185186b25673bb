"""How a model reads texts: which module, after which prompt, and how many tokens of them."""

from __future__ import annotations

from typing import Any

from sentence_transformers import SentenceTransformer

from evenspan.errors import UnsupportedModelError
from evenspan.models.pipeline import DOCUMENT_PROMPTS, document_modules

UNLIMITED = 10**9  # tokens that a model reads which reads any number


def document_module(model: SentenceTransformer) -> Any:
    """The module that reads documents: the first, or in a Router model that of its document route."""
    try:
        return document_modules(model)[0]
    except UnsupportedModelError:
        return next(iter(model))


def room_for_text(model: SentenceTransformer, prompt: str | None = None) -> int:
    """How many tokens of a text a model reads, besides its special tokens and the prompt; `UNLIMITED` if it reads all."""
    module = document_module(model)
    limit = getattr(module, "max_seq_length", None) or model.max_seq_length or 512
    tokenizer = getattr(module, "tokenizer", None) or model.tokenizer
    if limit >= UNLIMITED or not callable(tokenizer):  # static embeddings
        return UNLIMITED
    used: int = tokenizer.num_special_tokens_to_add()
    in_front = document_prompt(model) if prompt is None else prompt
    used += len(tokenizer(in_front, add_special_tokens=False, verbose=False)["input_ids"])
    return max(1, int(limit) - used)


def document_prompt(model: SentenceTransformer) -> str:
    """What a model puts in front of documents by itself."""
    return _prompt(model, *DOCUMENT_PROMPTS)


def query_prompt(model: SentenceTransformer) -> str:
    """What a model puts in front of queries by itself."""
    return _prompt(model, "query")


def _prompt(model: SentenceTransformer, *names: str) -> str:
    # The first that is there counts, empty or not: sentence-transformers gives every model a `query` and a `document`.
    chosen = next((name for name in names if name in model.prompts), model.default_prompt_name)
    return str(model.prompts.get(chosen or "") or "")


def check_window(model: SentenceTransformer, window: int, prompt: str | None) -> None:
    """Refuse windows of which the model would cut off the end."""
    room = room_for_text(model, prompt)
    if not 1 <= window <= room:
        raise ValueError(f"window must be between 1 and {room}, the tokens of text that the model reads, not {window}.")
