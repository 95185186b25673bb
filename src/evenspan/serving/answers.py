"""What clients get, as OpenAI's and Cohere's APIs have it."""

from __future__ import annotations

import binascii
import uuid
from collections.abc import Sequence
from typing import Any

import numpy as np
import orjson
from starlette.responses import Response

from evenspan.serving.messages import Encoded, Vectors


def json_response(values: Any) -> Response:
    """Values as JSON; arrays are written as they are."""
    return Response(orjson.dumps(values, option=orjson.OPT_SERIALIZE_NUMPY), media_type="application/json")


def embedding_answer(encoded: Encoded, model: str, encoding: str) -> Response:
    """OpenAI's list of embeddings."""
    data = [
        {"object": "embedding", "index": index, "embedding": written}
        for index, written in enumerate(_written(encoded.vectors, encoding))
    ]
    usage = {"prompt_tokens": encoded.tokens, "total_tokens": encoded.tokens, "truncated": encoded.truncated}
    return json_response({"object": "list", "data": data, "model": model, "usage": usage})


def cohere_answer(encoded: Encoded, texts: Sequence[Any], encodings: Sequence[str]) -> Response:
    """Cohere's embeddings by type."""
    meta: dict[str, Any] = {"api_version": {"version": "2"}, "billed_units": {"input_tokens": encoded.tokens}}
    if encoded.truncated:
        meta["warnings"] = [f"{encoded.truncated} of {len(texts)} texts were truncated"]
    embeddings = {name: _written(encoded.vectors, name) for name in dict.fromkeys(encodings)}
    answer = {"id": str(uuid.uuid4()), "response_type": "embeddings_by_type", "embeddings": embeddings}
    return json_response({**answer, "texts": texts, "meta": meta})


def _written(vectors: Vectors, encoding: str) -> Sequence[Any]:
    """Vectors as they stand in an answer."""
    if encoding == "base64":
        little = np.ascontiguousarray(vectors, dtype="<f4")
        return [binascii.b2a_base64(vector, newline=False).decode("ascii") for vector in little]
    return list(np.ascontiguousarray(vectors))
