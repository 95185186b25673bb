"""What the process that speaks HTTP and the one that has the model say to each other.

Both send lists of pairs: the number of a request and what is said of it. Errors are made of plain values, so that they can be
sent; they hold nothing of a text.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from evenspan.calibration import Calibration
from evenspan.serving.batcher import Role

Vectors = NDArray[np.float32]


class Encode(NamedTuple):
    """Please encode these texts; answered with `Encoded`."""

    role: Role
    texts: Sequence[Any]  # or their token ids
    are_ids: bool = False
    refuse_long: bool = False


class Parts(NamedTuple):
    """Please look at a document by its parts; answered with a dictionary."""

    text: str
    calibration: Calibration
    segments: int
    question: str | None


class AskState(NamedTuple):
    """How is it going? Answered with `State`."""


class Leave(NamedTuple):
    """Nobody waits for this request any more; not answered."""


class Stop(NamedTuple):
    """Please finish what waits, and end; not answered."""


Request = Encode | Parts | AskState | Leave | Stop


@dataclass(frozen=True)
class Encoded:
    """The vectors of a request, and what they took."""

    vectors: Vectors  # (texts, dimensions)
    tokens: int
    truncated: int


class State(NamedTuple):
    """How the encoder process does."""

    waiting_tokens: int
    step_seconds: float  # since the step that it is at began: a batch is launched or fetched, or a document looked at
    hangs: bool  # whether that is longer than any step should take


class Loaded(NamedTuple):
    """The model can be used."""

    calibration: Calibration | None


class NotLoaded(NamedTuple):
    """The model cannot be loaded: the error, and its traceback."""

    error: BaseException
    file: str
    line: str
    trace: str


class Ran(NamedTuple):
    """A batch has been run."""

    role: Role
    texts: int
    tokens: int
    seconds: float
    waited: float  # of them for the device, while nothing else was launched
    failures: int  # batches in a row that failed, this one included


class RefusedError(Exception):
    """A request that cannot be served as it is; the message says why."""


class TooLongError(Exception):
    """Texts are longer than the model reads, and were not to be truncated: how many, of how many, and some of their places."""

    def __init__(self, number: int, texts: int, places: Sequence[int]) -> None:
        super().__init__(number, texts, places)
        self.number, self.texts, self.places = number, texts, places


class NoRoomError(Exception):
    """A request is larger than the queue."""

    def __init__(self, tokens: int, most: int) -> None:
        super().__init__(tokens, most)
        self.tokens, self.most = tokens, most


class NotFiniteError(Exception):
    """The model made a vector that is none."""


class BrokenError(Exception):
    """Something else broke; its kind, as the log of the encoder process has it."""
