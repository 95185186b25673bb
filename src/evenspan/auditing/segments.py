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
_SPACES = re.compile(r"\s+")


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
    tokenizer: Any = getattr(document_module(model), "tokenizer", None) or model.tokenizer
    documents = []
    for start in range(0, len(texts), _AT_ONCE):
        places = _token_places(tokenizer, list(texts[start : start + _AT_ONCE]))
        for number, of_text in enumerate(places, start):
            real = [place for place in of_text if place[1] > place[0]]
            # Joined again, segments may have a token or two more than before.
            cut = _segments(texts[number], real[: max(1, room - 2 * segments)], segments)
            documents.append(MeasuredDocument(names[number], texts[number], len(of_text), cut))
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
    near = min(24, (places[-1][1] - places[0][0]) // (4 * count))
    cuts = [0]
    for number in range(1, count):
        place = places[number * len(places) // count][0]
        space = _SPACES.search(text, place - 1, place + near)
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
    cut = [
        CutDocument(document.name, document.tokens, document.tokens - room, _opening(document.text))
        for document in documents
        if document.tokens > room
    ]
    return Truncation(
        documents=len(documents),
        cut=len(cut),
        tokens=sum(document.tokens for document in documents),
        unread=sum(document.unread for document in cut),
        room=room,
        longest=max((document.tokens for document in documents), default=0),
        worst=tuple(sorted(cut, key=lambda document: (-document.unread, document.name))[:_WORST]),
    )


def _opening(text: str) -> str:
    return " ".join(text[: 4 * _OPENING].split())[:_OPENING]
