"""Errors as OpenAI's API has them."""

from __future__ import annotations

from collections.abc import Mapping

import orjson
from fastapi import Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response

from evenspan.formatting import clipped, tame

_TYPES = {401: "authentication_error", 404: "not_found_error", 408: "timeout_error", 429: "rate_limit_error"}
_NO_JSON = "The body must be a JSON object, sent as application/json."


class ApiError(Exception):
    """A request that is refused, and why; the message holds nothing of its texts."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        param: str | None = None,
        code: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status, self.message, self.param, self.code = status, message, param, code
        self.headers = dict(headers or {})

    def response(self) -> Response:
        """The answer to the client."""
        kind = _TYPES.get(self.status, "invalid_request_error" if self.status < 500 else "server_error")
        error = {"message": self.message, "type": kind, "param": self.param, "code": self.code}
        return Response(orjson.dumps({"error": error}), self.status, self.headers, "application/json")


def busy(seconds: int, message: str) -> ApiError:
    """Too much to do at present."""
    return ApiError(429, message, code="rate_limit_exceeded", headers={"Retry-After": str(seconds)})


async def answer_api_error(_: Request, error: Exception) -> Response:
    """The answer for an `ApiError`."""
    assert isinstance(error, ApiError)  # noqa: S101
    return error.response()


async def answer_validation(_: Request, error: Exception) -> Response:
    """The answer for a body that is not what it should be: the first thing that is wrong, and not the value."""
    assert isinstance(error, RequestValidationError)  # noqa: S101
    first = error.errors()[0]
    where = [str(part) for part in first["loc"] if part != "body"]
    message = clipped(tame(str(first["msg"]).removeprefix("Value error, ")), 500)
    if first["type"] == "value_error" and not where:
        return ApiError(400, f"The body has an {message}.").response()
    if first["type"] == "json_invalid" or not where or where[0].isdecimal():
        return ApiError(400, _NO_JSON).response()
    name = clipped(tame(where[0]), 80)
    return ApiError(400, f"{name}: {message}", param=name).response()


async def answer_http(_: Request, error: Exception) -> Response:
    """The answer for paths and methods that are not there."""
    assert isinstance(error, HTTPException)  # noqa: S101
    message = _NO_JSON if error.status_code == 400 else str(error.detail)
    return ApiError(error.status_code, message, headers=error.headers).response()


async def answer_unexpected(_: Request, _error: Exception) -> Response:
    """The answer for everything else. Starlette raises the error again behind it, and the guard logs it."""
    return ApiError(500, "Internal server error: see the server's log.").response()
