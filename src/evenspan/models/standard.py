"""Which models read texts in the usual way, so that their features can be made by `features`.

Every model is compared with its own `preprocess` on a few texts before that is done; one that differs, for whatever
reason, is left to sentence-transformers.
"""

from __future__ import annotations

from typing import Any
from weakref import WeakKeyDictionary

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Router, Transformer
from tokenizers import Tokenizer
from torch import Tensor, nn
from transformers import PreTrainedTokenizerFast

from evenspan.core.families import plain_class_of
from evenspan.models.features import TextFeatures, first_position

Task = str | None  # what is encoded: "document", "query", or nothing in particular

_LONGEST_PROBE = 40_000  # tokens; a model that reads more is not tried with a text that is too long
_MOST_KNOWN = 16  # prompts and states of a tokenizer that are remembered for a model


class NotStandardError(Exception):
    """Says why a model's texts are left to sentence-transformers."""


# By the module that reads the texts: what was found for a prompt and the state of its tokenizer, or why nothing was.
_known: WeakKeyDictionary[nn.Module, dict[tuple[Any, ...], TextFeatures | str]] = WeakKeyDictionary()
_copies: WeakKeyDictionary[Any, tuple[tuple[Any, ...], Tokenizer]] = WeakKeyDictionary()


def text_features(model: SentenceTransformer, task: Task, prompt: str) -> TextFeatures:
    """What makes the features of a model's texts; raises a `NotStandardError` that says why it is left to its `preprocess`."""
    module = _input_module(model, task)
    tokenizer: Any = module.tokenizer
    key = (task, prompt, _limit(module, task), _state(tokenizer), module.can_flatten_inputs)
    known = _known.setdefault(module, {})
    outcome = known.get(key)
    if outcome is None:
        try:
            outcome = _verified(model, module, task, prompt)
        except NotStandardError as error:
            outcome = str(error)
        if len(known) >= _MOST_KNOWN:  # of which other threads may read at this moment
            known.clear()
        known[key] = outcome
    if isinstance(outcome, str):
        raise NotStandardError(outcome)
    return outcome


def _input_module(model: SentenceTransformer, task: Task) -> Any:
    """The module that reads the texts, if it is sentence-transformers' own and reads them in the usual way."""
    module: Any = next(iter(model), None)
    if isinstance(module, Router):
        routes: Any = module.sub_modules
        module = routes[task][0] if task in routes else None
    tokenizer = getattr(module, "tokenizer", None)
    reasons = {
        f"{type(model).__name__} has code of its own": plain_class_of(model) is not SentenceTransformer,
        f"its first module is a {type(module).__name__}": plain_class_of(module) is not Transformer,
        "its preprocessing was replaced": any(
            "preprocess" in vars(part) for part in (model, module) if part is not None
        ),
    }
    if not any(reasons.values()):
        own = ("_encode_plus", "__call__", "pad", "_convert_encoding")
        plain = isinstance(tokenizer, PreTrainedTokenizerFast) and module.processor is tokenizer
        reasons |= {
            f"its tokenizer is a {type(tokenizer).__name__}": not plain
            or any(getattr(type(tokenizer), name) is not getattr(PreTrainedTokenizerFast, name) for name in own),
            "it reads more than text, or messages": set(module.modality_config) != {"text"}
            or module.modality_config["text"]["method"] != "forward",
            "it has options for its processor": bool(getattr(module, "processing_kwargs", None)),
            f"its task is {module.transformer_task}": module.transformer_task
            not in ("feature-extraction", "fill-mask"),
            "it expands queries": task == "query" and getattr(module, "query_expansion", None) is not None,
            f"it runs on {module.backend}": module.backend != "torch",
        }
    for reason, applies in reasons.items():
        if applies:
            raise NotStandardError(reason)
    return module


def _limit(module: Any, task: Task) -> int | None:
    """How many tokens of a text are read."""
    own = getattr(module, f"{task}_length", None)
    limit = module.tokenizer.model_max_length if own is None else own
    return None if limit is None or limit > 10**20 else int(limit)


def _state(tokenizer: Any) -> tuple[Any, ...]:
    """What the features depend on besides the tokenizer's vocabulary."""
    sides = (tokenizer.padding_side, tokenizer.truncation_side, tokenizer.pad_token_id, tokenizer.pad_token_type_id)
    return sides, tuple(tokenizer.model_input_names), _copy_state(tokenizer)


def _copy_state(tokenizer: Any) -> tuple[Any, ...]:
    backend = tokenizer.backend_tokenizer
    parts = (backend.normalizer, backend.pre_tokenizer, backend.post_processor)
    states = tuple(None if part is None else part.__getstate__() for part in parts)
    # The backend itself: another one of the same size may number its words otherwise.
    return backend, states, backend.get_vocab_size(), bool(getattr(tokenizer, "split_special_tokens", False))


def _copy(tokenizer: Any) -> Tokenizer:
    """A copy that cuts nothing off and does not pad."""
    state = _copy_state(tokenizer)
    made, copy = _copies.get(tokenizer, (None, None))
    if copy is None or made != state:
        copy = Tokenizer.from_str(tokenizer.backend_tokenizer.to_str())
        copy.no_truncation()
        copy.no_padding()
        copy.encode_special_tokens = state[-1]
        _copies[tokenizer] = (state, copy)
    return copy


def _verified(model: SentenceTransformer, module: Any, task: Task, prompt: str) -> TextFeatures:
    """The features of a model, seen to be what its own `preprocess` makes of a few texts."""
    tokenizer, limit = module.tokenizer, _limit(module, task)
    copy = _copy(tokenizer)
    probe = copy.encode("a")
    special = probe.special_tokens_mask
    if 0 not in special:
        raise NotStandardError("its tokenizer makes nothing of a letter")
    prefix, suffix = special.index(0), special[::-1].index(0)
    if limit is not None and limit <= prefix + suffix:
        raise NotStandardError(f"it reads {limit} tokens, special ones included")
    types = (probe.type_ids[0] if prefix else 0, probe.type_ids[prefix], probe.type_ids[-1] if suffix else 0)
    texts = ["", "a", "Two words, and 3 more."] + (
        ["a " * limit] if limit is not None and limit < _LONGEST_PROBE else []
    )
    expected = dict(model.preprocess(texts, prompt=prompt or None, task=task))
    tensors = tuple(name for name, value in expected.items() if isinstance(value, Tensor))
    features = TextFeatures(
        copy,
        prompt,
        limit,
        prefix,
        suffix,
        types,
        (tokenizer.pad_token_id or 0, tokenizer.pad_token_type_id),
        tokenizer.padding_side == "left",
        tokenizer.truncation_side == "left",
        tensors,
        bool(module.can_flatten_inputs),
        first_position(module.model),
        tuple((name, expected[name]) for name in ("task", "modality", "prompt_length") if name in expected),
    )
    made = features.batch(features.tokenize(texts).ids, features.layout)
    for name in {*expected, *made}:
        if name not in made or name not in expected or not _same(made[name], expected[name]):
            raise NotStandardError(f"its {name} would differ")
    return features


def _same(made: Any, expected: Any) -> bool:
    if isinstance(made, Tensor) and isinstance(expected, Tensor):
        return made.dtype == expected.dtype and torch.equal(made, expected)
    return bool(made == expected)
