"""`evenspan serve`: a calibrated model behind the API that clients speak."""

from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any

import typer

from evenspan.cli import options, parsing
from evenspan.cli.loading import in_another_process
from evenspan.cli.output import Display
from evenspan.cli.parsing import BadOptionError, choice, decimal, number, option
from evenspan.errors import require_extra

EPILOG = """Examples:

\b
evenspan serve BAAI/bge-m3
EVENSPAN_API_KEY=… evenspan serve fair-bge-m3 --host 0.0.0.0 --port 80
evenspan serve BAAI/bge-m3 --engine ray --replicas 1-4"""

_HOST = "Address to listen on. Any other than localhost needs EVENSPAN_API_KEY in the environment, or --no-auth."
_NO_AUTH = "Listen on any address without a key: anyone who can reach the server can use it."
_TYPE = "Input type for requests that do not specify one (default: reject)."
_IDS = "Accept token ids of this model as input. Most clients send ids of another tokenizer."
_ORIGIN = "Origin of a web page that may call the server, such as https://example.com. May be repeated."
_REPLICAS = "Replicas on Ray: a number such as 4, or a range such as 1-4 to scale with the load."
_ADDRESS = "Address of a Ray cluster, or auto for the one on this machine (default: start one)."


def _origin(words: str) -> str:
    if not words.startswith(("http://", "https://")) or words.endswith("/") or words.count("/") != 2:
        raise ValueError(f"write it as https://example.com, without a path, not {words!r}.")
    return parsing.text(words)


def _replicas(words: str) -> tuple[int, int]:
    least, dash, most = words.partition("-")
    if not least.isdecimal() or (dash and not most.isdecimal()) or len(words) > 9:
        raise ValueError(f"write 4 or 1-4, not {words!r}.")
    bounds = int(least), int(most or least)
    if not 1 <= bounds[0] <= bounds[1]:
        raise ValueError("the minimum must be at least 1 and not above the maximum.")
    return bounds


@dataclass(frozen=True)
class Limits:
    """What `ServerSettings` takes under the same names."""

    max_texts: Annotated[int, number("Maximum texts per request.")] = 2048
    max_bytes: Annotated[int, number("Maximum bytes in a request body.", 1000)] = 16_000_000
    queue_tokens: Annotated[int, number("Maximum queued tokens; further requests get 429.")] = 1_000_000
    batch_tokens: Annotated[
        int | None, number("Maximum tokens per batch (default: 4,096 on a CPU, 32,768 or more on a GPU).")
    ] = None
    patience: Annotated[
        float, decimal("Seconds a client may take to send a request or to read the response.", 0.1, 3600)
    ] = 30.0


def serve(
    *,
    model: options.Model,
    calibration: options.CalibrationOrNone = None,
    host: Annotated[str, option(_HOST, "HOST")] = "127.0.0.1",
    port: Annotated[int, number("Port to listen on; 0 picks a free one.", 0, 65535)] = 8000,
    device: options.Device = None,
    default_input_type: Annotated[str | None, choice(_TYPE, "query|document")] = None,
    accept_token_ids: Annotated[bool, typer.Option("--accept-token-ids", help=_IDS)] = False,
    no_auth: Annotated[bool, typer.Option("--no-auth", help=_NO_AUTH)] = False,
    cors_origin: Annotated[list[Any] | None, option(_ORIGIN, "ORIGIN", _origin)] = None,
    limits: Limits,
    engine: Annotated[str, choice("Run on this machine, or on Ray for more GPUs or machines.", "local|ray")] = "local",
    replicas: Annotated[Any, option(_REPLICAS, "N|MIN-MAX", _replicas)] = None,
    address: Annotated[str | None, option(_ADDRESS, "ADDRESS")] = None,
    display: Display,
) -> None:
    """Serve a calibrated model to the clients of OpenAI, Cohere, Voyage and Jina.

    Documents are calibrated, queries are not. The page at / shows how much each part of a document contributes to its vector.
    Runs until interrupted, then finishes pending requests.
    """
    on_ray = engine == "ray"
    if not on_ray and (replicas or address):
        raise BadOptionError("--replicas and --address are for --engine ray.")
    modules = ["fastapi", "uvicorn", "orjson", "prometheus_client"]
    require_extra("serve", "A server", *modules)
    if on_ray:
        require_extra("serve-ray", "A server on Ray", "ray", "aiohttp", "grpc")
    from evenspan.serving.settings import ServerSettings, access

    key_digest, any_host = access(host, no_auth=no_auth)
    settings = ServerSettings(
        model=model,
        calibration=calibration,
        device=device,
        default_input_type=default_input_type,
        accept_token_ids=accept_token_ids,
        key_digest=key_digest,
        any_host=any_host,
        cors_origins=tuple(cors_origin or ()),
        **vars(limits),
    )

    def say(where: str) -> None:
        display.say(f"Serving {settings.name} at {where}")

    if on_ray:
        from evenspan.serving.ray import run_on_ray

        run_on_ray(settings, host, port, replicas or (1, 1), address, say)
        return
    from evenspan.serving.run import listen, run

    surroundings = partial(in_another_process, device, quiet=display.quiet, debug=display.debug)
    with listen(host, port) as listener:
        run(settings, listener, say, surroundings)
