"""What clients get, as OpenAI's and Cohere's APIs have it."""

from __future__ import annotations

import base64
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray
from starlette.responses import Response

Vector = NDArray[np.float32]


@dataclass(frozen=True)
class Encoded:
    """The vectors of a request, and what they took."""

    vectors: Sequence[Vector]
    tokens: int
    truncated: int


def json_response(values: Any) -> Response:
    """Values as JSON; arrays are written as they are."""
    return Response(orjson.dumps(values, option=orjson.OPT_SERIALIZE_NUMPY), media_type="application/json")


def embedding_answer(encoded: Encoded, model: str, encoding: str) -> Response:
    """OpenAI's list of embeddings."""
    data = [
        {"object": "embedding", "index": index, "embedding": _written(vector, encoding)}
        for index, vector in enumerate(encoded.vectors)
    ]
    usage = {"prompt_tokens": encoded.tokens, "total_tokens": encoded.tokens, "truncated": encoded.truncated}
    return json_response({"object": "list", "data": data, "model": model, "usage": usage})


def cohere_answer(encoded: Encoded, texts: Sequence[Any], encodings: Sequence[str]) -> Response:
    """Cohere's embeddings by type."""
    meta: dict[str, Any] = {"api_version": {"version": "2"}, "billed_units": {"input_tokens": encoded.tokens}}
    if encoded.truncated:
        meta["warnings"] = [f"{encoded.truncated} of {len(texts)} texts were truncated"]
    embeddings = {name: [_written(vector, name) for vector in encoded.vectors] for name in dict.fromkeys(encodings)}
    answer = {"id": str(uuid.uuid4()), "response_type": "embeddings_by_type", "embeddings": embeddings}
    return json_response({**answer, "texts": texts, "meta": meta})


def _written(vector: Vector, encoding: str) -> Vector | str:
    if encoding == "base64":
        return base64.b64encode(vector.astype("<f4", copy=False).tobytes()).decode()
    return np.ascontiguousarray(vector)
