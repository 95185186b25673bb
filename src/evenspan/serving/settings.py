"""What a server is told when it starts: checked once, the same for every replica."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from evenspan.calibration import Calibration

KEY_VARIABLE = "EVENSPAN_API_KEY"
_LOCAL = ("127.0.0.1", "::1", "localhost")


@dataclass(frozen=True)
class ServerSettings:
    """Everything that a server needs to know.

    Args:
        model: what `evenspan.load` takes.
        calibration: `"none"` for the plain model; by default the one that was saved with it, or `Calibration()`.
        device: where it computes.
        default_input_type: what requests are that do not say it: `"query"` or `"document"`; by default they are refused.
        accept_token_ids: whether inputs may be tokens of this model.
        key_digest: of the key that clients must send; None for none.
        any_host: whether requests may name any host; else only this machine, so that no page of another site gets in.
        cors_origins: of pages elsewhere that may use the server.
        batch_tokens: in a batch; by default what `encode_documents` begins with.
        queue_tokens: that may wait.
        max_texts: in a request.
        max_bytes: in the body of a request.
        max_held_bytes: in the bodies of all requests together.
        patience: seconds that a client may take to send a request, or to read on in its answer.
    """

    model: str
    calibration: Calibration | str | None = None
    device: str | None = None
    default_input_type: str | None = None
    accept_token_ids: bool = False
    key_digest: bytes | None = None
    any_host: bool = False
    cors_origins: tuple[str, ...] = ()
    batch_tokens: int | None = None
    queue_tokens: int = 1_000_000
    max_texts: int = 2048
    max_bytes: int = 16_000_000
    max_held_bytes: int = 256_000_000
    patience: float = 30.0

    @cached_property
    def name(self) -> str:
        """What clients call the model: its name on the hub, or that of its folder."""
        return os.path.basename(os.path.abspath(self.model)) if os.path.isdir(self.model) else self.model


def digest(key: str | bytes) -> bytes:
    """A key as it is kept and compared: replicas and logs never see the key itself."""
    return hashlib.sha256(key if isinstance(key, bytes) else key.encode()).digest()


def is_local(host: str) -> bool:
    """Whether an address is of this machine alone."""
    return host in _LOCAL


def access(host: str, *, no_auth: bool, environment: Mapping[str, str] = os.environ) -> tuple[bytes | None, bool]:
    """The digest of the key that clients must send, and whether requests may name any host.

    Raises:
        ValueError: if the server would be open to others, and nobody said that it should be.
    """
    key = environment.get(KEY_VARIABLE, "")
    if no_auth and key:
        raise ValueError(f"--no-auth and {KEY_VARIABLE} cannot be combined: leave one of them out.")
    if not (is_local(host) or key or no_auth):
        raise ValueError(
            f"--host {host} would be open to other machines: set {KEY_VARIABLE} to a key that clients must send, or give "
            "--no-auth."
        )
    if key and (key != key.strip() or not key.isascii() or not key.isprintable()):
        raise ValueError(f"{KEY_VARIABLE} must be printable ASCII without spaces around it, to fit into a header.")
    return (digest(key) if key else None), bool(key) or no_auth
