"""What a server does with its connections."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import pytest
import uvicorn

from evenspan.serving.run import _protocol, listen


async def answering(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"ok"})


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_an_answer_does_not_wait_for_an_acknowledgement(host) -> None:
    try:
        listener = listen(host, 0)
    except OSError:
        pytest.skip(f"There is no {host} here.")

    async def option() -> int:
        server = uvicorn.Server(uvicorn.Config(answering, http=_protocol(30.0), lifespan="off", log_level="error"))
        serving = asyncio.create_task(server.serve([listener]))
        reader, writer = await asyncio.open_connection(*listener.getsockname()[:2])
        writer.write(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert (await reader.readuntil(b"ok")).startswith(b"HTTP/1.1 200")
        (connection,) = server.server_state.connections
        accepted: Any = connection.transport.get_extra_info("socket")
        found: int = accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        writer.close()
        server.should_exit = True
        await serving
        return found

    with listener:
        assert asyncio.run(option()) != 0
