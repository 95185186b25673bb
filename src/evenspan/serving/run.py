"""A server on this machine: listens, says so, and finishes what is running when it is told to end."""

from __future__ import annotations

import asyncio
import contextlib
import math
import signal
import socket
from collections.abc import Callable
from typing import Any

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from evenspan.serving.app import create_app
from evenspan.serving.child import Surroundings
from evenspan.serving.errors import ApiError
from evenspan.serving.guard import Guard
from evenspan.serving.process import EncoderProcess
from evenspan.serving.settings import ServerSettings


def listen(host: str, port: int) -> socket.socket:
    """A socket that is bound before a model is loaded: a port that is taken costs no time."""
    try:
        (family, *_, address), *_ = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        return socket.create_server(address[:2], family=family, backlog=1024)
    except (OSError, UnicodeError) as error:
        raise OSError(f"Cannot listen at {host}, port {port}: {error}.") from error


def run(
    settings: ServerSettings,
    listener: socket.socket,
    ready: Callable[[str], None],
    surroundings: Surroundings = contextlib.nullcontext,
) -> None:
    """Serve until SIGTERM or Ctrl-C.

    Args:
        settings: of the server.
        listener: where it listens.
        ready: is told the address once requests are answered.
        surroundings: see `EncoderProcess`.

    Raises:
        RuntimeError: when the process that has the model died; whatever watches over the server starts it again.
    """
    app = create_app(settings, surroundings)
    try:
        app.engine.start()  # here, so that a model that cannot be loaded is an error like any other
        _serve(app, listener, ready)
    finally:
        app.engine.kill()


def _serve(app: Guard, listener: socket.socket, ready: Callable[[str], None]) -> None:
    host, port = listener.getsockname()[:2]
    config = uvicorn.Config(
        app,
        http=_protocol(app.settings.patience),
        ws="none",
        lifespan="on",
        log_level="error",
        access_log=False,
        server_header=False,
    )
    server = _Server(config, app.engine, lambda: ready(f"http://{f'[{host}]' if ':' in host else host}:{port}"))
    app.engine.on_death = lambda _: setattr(server, "should_exit", True)
    server.should_exit = app.engine.died is not None
    before = signal.signal(signal.SIGTERM, lambda *_: None)  # uvicorn raises it again when everything is done
    try:
        server.run([listener])
    finally:
        signal.signal(signal.SIGTERM, before)
    if app.engine.died is not None:
        raise RuntimeError(app.engine.died)
    if not server.started:
        raise RuntimeError("The server did not start.")


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, engine: EncoderProcess, ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._engine, self._ready = engine, ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self._ready()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        watching = asyncio.create_task(self._engine.kill_if_it_hangs())
        try:
            await super().shutdown(sockets)
        finally:
            watching.cancel()


class _Protocol(H11Protocol):
    def send_400_response(self, msg: str) -> None:
        """What uvicorn says itself, in the form of all errors."""
        answer = ApiError(400, msg, headers={"Connection": "close"}).response()
        head = h11.Response(status_code=400, headers=answer.raw_headers)
        for event in (head, h11.Data(data=bytes(answer.body)), h11.EndOfMessage()):
            self.transport.write(self.conn.send(event))
        self.transport.close()


def _protocol(patience: float) -> type[asyncio.Protocol]:
    """HTTP for clients that send the head of a request within this time, and read on in an answer, or are hung up on."""

    class HurriedProtocol(_Protocol):
        _hurry: asyncio.TimerHandle | None = None
        _reading: asyncio.TimerHandle | None = None

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            # Head and body are written apart: the body would wait for the client's delayed acknowledgement of the head, 40 ms.
            # asyncio sees to it only for sockets that were made with the protocol's number, which `create_server` leaves out.
            with contextlib.suppress(OSError):  # if the client is gone already
                transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            transport.set_write_buffer_limits(0)  # so that `pause_writing` is called whenever something is left
            self._expect_head()

        def data_received(self, data: bytes) -> None:
            if self._hurry is None and (self.cycle is None or self.cycle.response_complete):
                self._expect_head()
            super().data_received(data)
            if self.cycle is not None and not self.cycle.response_complete:
                self._relax()

        def connection_lost(self, exc: Exception | None) -> None:
            self._relax()
            self._stop_watching()
            super().connection_lost(exc)

        def pause_writing(self) -> None:
            super().pause_writing()
            self._watch()

        def resume_writing(self) -> None:
            super().resume_writing()
            self._stop_watching()

        def _watch(self, left: float = math.inf) -> None:
            now = self.transport.get_write_buffer_size()
            if now >= left:  # nothing was read meanwhile, and even a server that ends would wait for it
                self.transport.abort()
            else:
                self._reading = self.loop.call_later(patience, self._watch, now)

        def _stop_watching(self) -> None:
            if self._reading is not None:
                self._reading.cancel()
                self._reading = None

        def _expect_head(self) -> None:
            self._hurry = self.loop.call_later(patience, self.transport.close)

        def _relax(self) -> None:
            if self._hurry is not None:
                self._hurry.cancel()
                self._hurry = None

    return HurriedProtocol
