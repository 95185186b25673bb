"""The application: its paths, and what each of them does."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Coroutine
from dataclasses import asdict
from importlib import resources
from typing import Any, TypeVar

import numpy as np
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.middleware.cors import CORSMiddleware
from starlette.exceptions import HTTPException
from starlette.responses import Response

from evenspan import __version__
from evenspan.auditing.parts import parts
from evenspan.calibration import Calibration
from evenspan.serving import errors
from evenspan.serving.answers import Encoded, cohere_answer, embedding_answer, json_response
from evenspan.serving.batcher import ClosedError, QueueFullError
from evenspan.serving.engine import Engine, NotFiniteError
from evenspan.serving.guard import ClientLeftError, Guard
from evenspan.serving.metrics import CONTENT_TYPE, Metrics
from evenspan.serving.requests import (
    CohereRequest,
    EmbeddingRequest,
    Order,
    PartsRequest,
    check_model,
    cohere_order,
    embedding_order,
)
from evenspan.serving.settings import ServerSettings

Result = TypeVar("Result")
_PAGE = {"page.html": "text/html", "page.css": "text/css", "page.js": "text/javascript"}
_POLICY = {
    "Content-Security-Policy": "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}


def create_app(settings: ServerSettings) -> Guard:
    """The application of one server or replica; its model is loaded when it starts."""
    engine = Engine(settings, Metrics())

    @contextlib.asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        await asyncio.to_thread(engine.start)
        yield
        await asyncio.to_thread(engine.stop)

    app = FastAPI(title="evenspan", version=__version__, docs_url=None, redoc_url=None, lifespan=lifespan)
    app.add_exception_handler(errors.ApiError, errors.answer_api_error)
    app.add_exception_handler(RequestValidationError, errors.answer_validation)
    app.add_exception_handler(HTTPException, errors.answer_http)
    _add_embeddings(app, engine)
    _add_parts(app, engine)
    _add_information(app, engine)
    _add_page(app)
    if settings.cors_origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=list(settings.cors_origins),
            allow_methods=["GET", "POST"],
            allow_headers=["authorization", "content-type"],
        )
    return Guard(app, engine)


def _add_embeddings(app: FastAPI, engine: Engine) -> None:
    settings = engine.settings

    @app.post("/v1/embeddings")
    async def embeddings(body: EmbeddingRequest, request: Request) -> Response:
        order = embedding_order(body, settings)
        encoded = await unless_left(request, encode(engine, order))
        return embedding_answer(encoded, body.model, body.encoding_format or body.embedding_type or "float")

    @app.post("/v2/embed")
    async def embed(body: CohereRequest, request: Request) -> Response:
        order = cohere_order(body, settings)
        encoded = await unless_left(request, encode(engine, order))
        return cohere_answer(encoded, order.texts, body.embedding_types or ["float"])


def _add_parts(app: FastAPI, engine: Engine) -> None:
    @app.post("/v1/parts")
    async def document_parts(body: PartsRequest, request: Request) -> Response:
        if body.model is not None:
            check_model(body.model, engine.settings)
        try:
            own = engine.calibration or Calibration()
            calibration = own if body.calibration is None else Calibration.parse(body.calibration)
            of_document = await unless_left(
                request,
                _while_open(
                    engine.between_batches(
                        lambda model: parts(
                            model, body.input, calibration, segments=body.segments, question=body.question
                        )
                    )
                ),
            )
        except (TypeError, ValueError) as error:
            raise errors.ApiError(400, str(error)) from None
        return json_response({"object": "parts", "calibration": str(calibration), **asdict(of_document)})


def _add_information(app: FastAPI, engine: Engine) -> None:
    settings = engine.settings
    names = [settings.name, f"{settings.name}:query", f"{settings.name}:document"]

    def entry(name: str) -> dict[str, Any]:
        about = {"calibration": str(engine.calibration or "none"), "default_input_type": settings.default_input_type}
        return {"id": name, "object": "model", "created": 0, "owned_by": "evenspan", **about}

    @app.get("/v1/models")
    async def models() -> Response:
        return json_response({"object": "list", "data": [entry(name) for name in names]})

    @app.get("/v1/models/{name:path}")
    async def model(name: str) -> Response:
        check_model(name, settings)
        return json_response(entry(name))

    @app.get("/health")
    async def health() -> Response:
        if not engine.healthy:
            raise errors.ApiError(503, "Batches fail.")
        return json_response({"status": "ok"})

    @app.get("/metrics")
    async def figures() -> Response:
        return Response(engine.metrics.text(), media_type=CONTENT_TYPE)


def _add_page(app: FastAPI) -> None:
    folder = resources.files("evenspan.serving") / "page"
    for file, kind in _PAGE.items():
        content = (folder / file).read_bytes()

        async def page(content: bytes = content, kind: str = kind) -> Response:
            return Response(content, media_type=f"{kind}; charset=utf-8", headers=_POLICY)

        app.get("/" if file == "page.html" else f"/{file}", include_in_schema=False, response_model=None)(page)


async def encode(engine: Engine, order: Order) -> Encoded:
    """The vectors of a request."""
    try:
        ready = await engine.read(order.role, order.texts, are_ids=order.are_ids)
    except ValueError as error:
        raise errors.ApiError(400, str(error), param="input") from None
    truncated = [place for place, text in enumerate(ready) if text.cut]
    if truncated and order.refuse_long:
        places = ", ".join(map(str, truncated[:10]))
        raise errors.ApiError(
            400,
            f"{len(truncated)} of {len(ready)} texts are longer than the model reads (numbers {places}), and were not to be "
            "truncated.",
            param="input",
            code="context_length_exceeded",
        )
    tokens = sum(text.tokens for text in ready)
    if tokens > engine.settings.queue_tokens:
        most = engine.settings.queue_tokens
        raise errors.ApiError(
            413, f"The request has {tokens:,} tokens, and {most:,} find room: send fewer texts at once."
        )
    vectors = await _while_open(engine.encode(order.role, ready))
    engine.metrics.truncated.labels(order.role).inc(len(truncated))
    return Encoded([_cut(vector, order.dimensions) for vector in vectors], tokens, len(truncated))


def _cut(vector: Any, dimensions: int | None) -> Any:
    """The first dimensions of a vector; one of length 1 has it afterwards too."""
    if dimensions is None or dimensions == len(vector):
        return vector
    if dimensions > len(vector):
        raise errors.ApiError(400, f"dimensions must be at most {len(vector)}, not {dimensions}.", param="dimensions")
    cut = vector[:dimensions]
    is_unit = abs(float(np.linalg.norm(vector)) - 1) < 1e-3
    return cut / max(float(np.linalg.norm(cut)), 1e-12) if is_unit else cut


async def _while_open(work: Coroutine[Any, Any, Result]) -> Result:
    """What work returns, or what to tell a client if there was no room for it."""
    try:
        return await work
    except QueueFullError as error:
        raise errors.busy(error.retry_after, "The queue is full: try again later.") from None
    except ClosedError as error:
        raise errors.ApiError(503, str(error), headers={"Retry-After": "5"}) from None
    except NotFiniteError:
        raise errors.ApiError(500, "The model made a vector that is not finite: serve it in float32.") from None


async def unless_left(request: Request, work: Coroutine[Any, Any, Result]) -> Result:
    """What work returns; it is cancelled when the client goes."""

    async def gone() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass

    doing, leaving = asyncio.ensure_future(work), asyncio.ensure_future(gone())
    try:
        await asyncio.wait({doing, leaving}, return_when=asyncio.FIRST_COMPLETED)
        if not doing.done():
            raise ClientLeftError
        return doing.result()
    finally:
        doing.cancel()
        leaving.cancel()
