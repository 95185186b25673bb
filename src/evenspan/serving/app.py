"""The application: its paths, and what each of them does."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Coroutine
from dataclasses import replace
from importlib import resources
from typing import Any, TypeVar

import numpy as np
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response

from evenspan import __version__
from evenspan.calibration import Calibration
from evenspan.serving import errors
from evenspan.serving.answers import cohere_answer, embedding_answer, json_response
from evenspan.serving.batcher import ClosedError, QueueFullError
from evenspan.serving.child import Surroundings
from evenspan.serving.guard import ClientLeftError, Guard
from evenspan.serving.messages import (
    BrokenError,
    Encode,
    Encoded,
    NoRoomError,
    NotFiniteError,
    Parts,
    RefusedError,
    TooLongError,
    Vectors,
)
from evenspan.serving.metrics import CONTENT_TYPE, Metrics
from evenspan.serving.process import EncoderProcess
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


def create_app(settings: ServerSettings, surroundings: Surroundings = contextlib.nullcontext) -> Guard:
    """The application of one server or replica; the process with its model is started when it starts."""
    engine = EncoderProcess(settings, Metrics(), surroundings)

    @contextlib.asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        await asyncio.to_thread(engine.start)
        yield
        await asyncio.to_thread(engine.stop)

    app = FastAPI(title="evenspan", version=__version__, docs_url=None, redoc_url=None, lifespan=lifespan)
    app.add_exception_handler(errors.ApiError, errors.answer_api_error)
    app.add_exception_handler(RequestValidationError, errors.answer_validation)
    app.add_exception_handler(HTTPException, errors.answer_http)
    app.add_exception_handler(Exception, errors.answer_unexpected)
    _add_embeddings(app, engine)
    _add_parts(app, engine)
    _add_information(app, engine)
    _add_page(app)
    return Guard(app, engine)


def _add_embeddings(app: FastAPI, engine: EncoderProcess) -> None:
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


def _add_parts(app: FastAPI, engine: EncoderProcess) -> None:
    @app.post("/v1/parts")
    async def document_parts(body: PartsRequest, request: Request) -> Response:
        if body.model is not None:
            check_model(body.model, engine.settings)
        try:
            own = engine.calibration or Calibration()
            calibration = own if body.calibration is None else Calibration.parse(body.calibration)
        except (TypeError, ValueError) as error:
            raise errors.ApiError(400, str(error)) from None
        wanted = Parts(body.input, calibration, body.segments, body.question)
        of_document = await unless_left(request, _while_open(engine.parts(wanted)))
        return json_response({"object": "parts", "calibration": str(calibration), **of_document})


def _add_information(app: FastAPI, engine: EncoderProcess) -> None:
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
        await _while_open(engine.check())
        return json_response({"status": "ok"})

    @app.get("/metrics")
    async def figures() -> Response:
        with contextlib.suppress(ClosedError):
            engine.metrics.waiting.set((await engine.state()).waiting_tokens)
        return Response(engine.metrics.text(), media_type=CONTENT_TYPE)


def _add_page(app: FastAPI) -> None:
    folder = resources.files("evenspan.serving") / "page"
    for file, kind in _PAGE.items():
        content = (folder / file).read_bytes()

        async def page(content: bytes = content, kind: str = kind) -> Response:
            return Response(content, media_type=f"{kind}; charset=utf-8", headers=_POLICY)

        app.get("/" if file == "page.html" else f"/{file}", include_in_schema=False, response_model=None)(page)


async def encode(engine: EncoderProcess, order: Order) -> Encoded:
    """The vectors of a request."""
    wanted = Encode(order.role, order.texts, order.are_ids, order.refuse_long)
    encoded = await _while_open(engine.encode(wanted), param="input")
    engine.metrics.truncated.labels(order.role).inc(encoded.truncated)
    return replace(encoded, vectors=_cut(encoded.vectors, order.dimensions))


def _cut(vectors: Vectors, dimensions: int | None) -> Vectors:
    """The first dimensions of vectors; those of length 1 have it afterwards too."""
    most = vectors.shape[1]
    if dimensions is None or dimensions == most:
        return vectors
    if dimensions > most:
        raise errors.ApiError(400, f"dimensions must be at most {most}, not {dimensions}.", param="dimensions")
    cut = vectors[:, :dimensions]
    is_unit = np.abs(np.linalg.norm(vectors, axis=1, keepdims=True) - 1) < 1e-3
    lengths = np.maximum(np.linalg.norm(cut, axis=1, keepdims=True), 1e-12)
    return np.where(is_unit, cut / lengths, cut)


async def _while_open(work: Coroutine[Any, Any, Result], param: str | None = None) -> Result:
    """What work returns, or what to tell a client if it was refused."""
    try:
        return await work
    except RefusedError as error:
        raise errors.ApiError(400, str(error), param=param) from None
    except TooLongError as error:
        raise errors.ApiError(
            400,
            f"{error.number} of {error.texts} texts are longer than the model reads (numbers "
            f"{', '.join(map(str, error.places))}), and the request forbids truncation.",
            param=param,
            code="context_length_exceeded",
        ) from None
    except NoRoomError as error:
        raise errors.ApiError(
            413, f"The request has {error.tokens:,} tokens, and the limit is {error.most:,}: send fewer texts at once."
        ) from None
    except QueueFullError as error:
        raise errors.busy(error.retry_after, "The queue is full: try again later.") from None
    except ClosedError as error:
        raise errors.ApiError(503, str(error), headers={"Retry-After": "5"}) from None
    except NotFiniteError:
        raise errors.ApiError(500, "The model returned a vector that is not finite: serve it in float32.") from None
    except BrokenError as error:
        raise errors.ApiError(500, f"The model failed with {error}: see the server's log.") from None


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
