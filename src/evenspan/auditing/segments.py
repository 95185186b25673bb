"""Documents as a model reads them: how long they are, where it stops, and cut into segments."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sentence_transformers import SentenceTransformer

from evenspan.auditing.schema import CutDocument, Truncation
from evenspan.models.reading import document_module

SHORTEST_SEGMENT = 16  # tokens; of less a vector says little
_AT_ONCE = 64
_WORST = 5
_OPENING = 160
_WORD_END = re.compile(r"\s+")


@dataclass(frozen=True)
class MeasuredDocument:
    """A document of the sample: its tokens, and its segments if the part that is read is long enough."""

    name: str
    text: str
    tokens: int
    segments: tuple[str, ...]


def read(
    model: SentenceTransformer, names: Sequence[str], texts: Sequence[str], room: int, segments: int
) -> list[MeasuredDocument]:
    """Measure and cut documents, all but what stands behind the room that a model has for text."""
    module = document_module(model)
    tokenizer: Any = getattr(module, "tokenizer", None) or model.tokenizer
    documents = []
    for start in range(0, len(texts), _AT_ONCE):
        batch = list(texts[start : start + _AT_ONCE])
        for name, text, places in zip(
            names[start : start + _AT_ONCE], batch, _token_places(tokenizer, batch), strict=True
        ):
            real = [place for place in places if place[1] > place[0]]
            # Joined again, segments may have a token or two more than before.
            cut = _segments(text, real[: max(1, room - 2 * segments)], segments)
            documents.append(MeasuredDocument(name, text, len(places), cut))
    return documents


def _token_places(tokenizer: Any, texts: list[str]) -> list[list[tuple[int, int]]]:
    """Where the tokens of each text begin and end."""
    options = {"add_special_tokens": False, "truncation": False, "verbose": False}
    places: list[list[tuple[int, int]]]
    if not callable(tokenizer):  # that of static embeddings
        places = [encoding.offsets for encoding in tokenizer.encode_batch(texts, add_special_tokens=False)]
    elif getattr(tokenizer, "is_fast", False):
        places = tokenizer(texts, return_offsets_mapping=True, **options)["offset_mapping"]
    else:  # without offsets words stand for tokens, as many to each as there are
        places = [_words(text, len(tokenizer(text, **options)["input_ids"])) for text in texts]
    return places


def _segments(text: str, places: Sequence[tuple[int, int]], count: int) -> tuple[str, ...]:
    """The text of these tokens in parts of the same number of tokens, each beginning with a word if one is near."""
    if len(places) < count * SHORTEST_SEGMENT:
        return ()
    cuts = [0]
    for number in range(1, count):
        place = places[number * len(places) // count][0]
        near = min(24, (places[-1][1] - places[0][0]) // (4 * count))
        space = _WORD_END.search(text, place - 1, place + near)
        cuts.append(space.end() if space else place)
    cuts.append(places[-1][1])
    parts = tuple(text[start:end].strip() for start, end in itertools.pairwise(cuts))
    return parts if all(parts) else ()


def _words(text: str, tokens: int) -> list[tuple[int, int]]:
    spans = [word.span() for word in re.finditer(r"\S+", text)]
    if not spans or not tokens:
        return []
    if len(spans) < tokens // 4:  # a script without spaces
        spans = [(place, place + 1) for place in range(len(text))]
    return [spans[number * len(spans) // tokens] for number in range(tokens)]


def truncation(documents: Sequence[MeasuredDocument], room: int) -> Truncation:
    """What is never read of documents."""
    unread = [max(0, document.tokens - room) for document in documents]
    worst = sorted(zip(unread, documents, strict=True), key=lambda pair: (-pair[0], pair[1].name))[:_WORST]
    return Truncation(
        documents=len(documents),
        cut=sum(count > 0 for count in unread),
        tokens=sum(document.tokens for document in documents),
        unread=sum(unread),
        room=room,
        longest=max((document.tokens for document in documents), default=0),
        worst=tuple(
            CutDocument(
                document.name, document.tokens, count, " ".join(document.text[: 4 * _OPENING].split())[:_OPENING]
            )
            for count, document in worst
            if count > 0
        ),
    )
