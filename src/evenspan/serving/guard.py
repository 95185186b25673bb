"""What every request passes first: who may ask, how much, and how slowly."""

from __future__ import annotations

import asyncio
import hmac
import time

from starlette.datastructures import Headers
from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from evenspan.serving.errors import ApiError, busy
from evenspan.serving.logs import report
from evenspan.serving.process import EncoderProcess
from evenspan.serving.settings import digest

OPEN_PATHS = ("/", "/page.css", "/page.js", "/health")
_WATCHING = ("/health", "/metrics")  # answered however much there is to do
_MOST_REQUESTS = 2048  # open at a time: each takes memory, however few its tokens are
_LOCAL_HOSTS = ("localhost", "127.0.0.1", "[::1]")
_LINGER = (
    3.0  # seconds that go on being read after a body was refused: a client that still writes would miss the answer
)
_CLOSE = {"Connection": "close"}
_CLIENT_LEFT = 499


class ClientLeftError(ApiError):
    """Nobody waits for this answer, which is for the metrics alone."""

    def __init__(self) -> None:
        super().__init__(_CLIENT_LEFT, "The client has left.")


class Guard:
    """Wraps the application. Whole bodies are read here, within their limits; the application gets them as they are."""

    def __init__(self, app: ASGIApp, engine: EncoderProcess) -> None:
        self.engine, self.settings, self.metrics = engine, engine.settings, engine.metrics
        self.app = self._for_pages(app)
        self.held = 0  # bytes of bodies
        self.open = 0  # requests, but for those of `_WATCHING`

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        began, status = time.perf_counter(), 500

        async def watched(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._serve(scope, receive, watched)
        except ApiError as error:
            await self._for_pages(error.response())(scope, receive, watched)
        except Exception as error:
            report("A request failed", error)
        if status == _CLIENT_LEFT:
            self.metrics.left.inc()
        route = getattr(scope.get("route"), "path", "other")
        self.metrics.requests.labels(route, status).inc()
        self.metrics.seconds.labels(route).observe(time.perf_counter() - began)

    def _for_pages(self, app: ASGIApp) -> ASGIApp:
        """The same for pages elsewhere, if any were named: they read refusals, too."""
        if not self.settings.cors_origins:
            return app
        return CORSMiddleware(
            app,
            allow_origins=list(self.settings.cors_origins),
            allow_methods=["GET", "POST"],
            allow_headers=["authorization", "content-type"],
            expose_headers=["retry-after"],
        )

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = Headers(scope=scope)
        self._check_host(headers)
        preflight = scope["method"] == "OPTIONS" and self.settings.cors_origins
        if scope["path"] not in OPEN_PATHS and not preflight:
            self._check_key(headers)
        length = headers.get("content-length", "0")
        if not length.isdecimal():
            raise ApiError(400, "Content-Length must be a number.", headers=_CLOSE)
        counts = scope["path"] not in _WATCHING
        if counts and self.open >= _MOST_REQUESTS:
            raise ApiError(503, "The server has too many open requests: try again later.", headers={"Retry-After": "1"})
        self.open += counts
        body = Body(self, receive)
        try:
            if len(length) > 18 or int(length) > self.settings.max_bytes:
                await body.refuse()
            await body.read()
            await self.app(scope, body.receive, send)
        finally:
            self.held -= body.size
            self.open -= counts

    def _check_host(self, headers: Headers) -> None:
        """Without a key only this machine is served: a page of another site that found its way here names its own host."""
        host = headers.get("host", "")
        name = host.rpartition(":")[0] if host.rpartition(":")[2].isdecimal() and not host.endswith("]") else host
        if not self.settings.any_host and name not in _LOCAL_HOSTS:
            raise ApiError(
                403, "Without a key this server accepts only localhost: set EVENSPAN_API_KEY.", headers=_CLOSE
            )

    def _check_key(self, headers: Headers) -> None:
        if self.settings.key_digest is None:
            return
        kind, _, key = headers.get("authorization", "").partition(" ")
        given = digest(key.strip().encode("latin-1", "replace"))
        if not hmac.compare_digest(given, self.settings.key_digest) or kind.lower() != "bearer":
            raise ApiError(
                401,
                "This server requires its API key: send 'Authorization: Bearer …'.",
                code="invalid_api_key",
                headers={"WWW-Authenticate": "Bearer", **_CLOSE},
            )


class Body:
    """The body of one request."""

    def __init__(self, guard: Guard, receive: Receive) -> None:
        self._guard, self._receive = guard, receive
        self._parts: list[bytes] = []
        self._given = False
        self.size = 0

    async def read(self) -> None:
        """Read it whole, unless it is too large or comes too slowly."""
        try:
            async with asyncio.timeout(self._guard.settings.patience):
                while await self._part():
                    pass
        except TimeoutError:
            raise ApiError(
                408, f"The body did not arrive within {self._guard.settings.patience:g} seconds.", headers=_CLOSE
            ) from None

    async def _part(self) -> bool:
        message = await self._receive()
        if message["type"] == "http.disconnect":
            raise ClientLeftError
        part = message.get("body", b"")
        self.size += len(part)
        self._guard.held += len(part)
        if self.size > self._guard.settings.max_bytes:
            await self.refuse()
        if self._guard.held > self._guard.settings.max_held_bytes:
            raise busy(1, "The server holds too many requests: try again later.")
        self._parts.append(part)
        return bool(message.get("more_body"))

    async def refuse(self) -> None:
        """Say that it is too large, once the client has written it or some time has passed."""
        self._parts.clear()
        try:
            async with asyncio.timeout(_LINGER):
                while (await self._receive()).get("more_body"):
                    pass
        except TimeoutError:
            pass
        most = self._guard.settings.max_bytes
        raise ApiError(413, f"The body is larger than {most:,} bytes: send fewer texts at once.", headers=_CLOSE)

    async def receive(self) -> Message:
        """What the application reads: the body at once, and then whether the client is still there."""
        if self._given:
            return await self._receive()
        self._given = True
        body = b"".join(self._parts)
        self._parts.clear()
        return {"type": "http.request", "body": body, "more_body": False}
