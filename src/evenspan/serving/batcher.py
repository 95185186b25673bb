"""What is encoded next: texts of many clients in batches, queries first, nothing forgotten, and no more than there is room for.

A plain thread-safe class that knows neither HTTP nor models. Requests put tickets in, one thread takes batches out.
"""

from __future__ import annotations

import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Literal

Role = Literal["query", "document"]
ROLES: tuple[Role, Role] = ("query", "document")
Plan = Callable[[Role, Sequence[int]], Iterable[list[int]]]  # the lengths of texts to the places of each batch

_LOOKED_AT = 1024  # texts of a lane that batches are made of, the oldest first


class QueueFullError(Exception):
    """There is no room for a request at present."""

    def __init__(self, retry_after: int) -> None:
        super().__init__(retry_after)
        self.retry_after = retry_after


class ClosedError(Exception):
    """The server is ending and takes no more work."""


@dataclass(eq=False)
class Ticket:
    """The texts of one request. `done` is called once, from another thread: with the results in order, or with an error."""

    role: Role
    texts: Sequence[Any]
    lengths: Sequence[int]
    done: Callable[[list[Any] | None, BaseException | None], None]
    cancelled: bool = False
    results: list[Any] = field(init=False)
    missing: int = field(init=False)
    entries: list[Entry] = field(init=False)

    def __post_init__(self) -> None:
        self.missing = len(self.texts)
        self.results = [None] * self.missing
        both = zip(self.texts, self.lengths, strict=True)
        self.entries = [Entry(self, place, text, tokens) for place, (text, tokens) in enumerate(both)]


@dataclass(eq=False, slots=True)
class Entry:
    """One text of a ticket: what is to be encoded, and how long it is."""

    ticket: Ticket
    place: int
    text: Any
    tokens: int


@dataclass(frozen=True)
class Work:
    """A batch of texts, or something else that the thread is asked to do in between."""

    role: Role | None
    entries: Sequence[Entry] = ()
    tokens: int = 0
    job: Callable[[], None] | None = None


class Batcher:
    """A bounded queue with a lane for queries and one for documents.

    Queries go first, but when documents wait, some batches are theirs. A batch holds texts of similar length, as the
    encoder plans them, and always the oldest one of its lane: none waits for ever.

    Args:
        plan: cuts lengths into batches.
        most_tokens: that may wait; more are refused, unless nothing waits.
        queries_in_a_row: batches of queries between two of documents, while documents wait.
        most_jobs: other work that may wait.
    """

    def __init__(self, plan: Plan, most_tokens: int, queries_in_a_row: int = 4, most_jobs: int = 8) -> None:
        self._plan, self.most_tokens, self._most_jobs = plan, most_tokens, most_jobs
        self._queries_in_a_row = queries_in_a_row
        self._lanes: dict[Role, OrderedDict[Entry, None]] = {role: OrderedDict() for role in ROLES}
        self._jobs: deque[Callable[[], None]] = deque()
        self._changed = threading.Condition()
        self._in_a_row, self._was_job = 0, False
        self._closed = False
        self._rate = 0.0  # tokens a second, lately
        self.waiting_tokens = 0

    def put(self, ticket: Ticket) -> None:
        """Take in a request, whole or not at all."""
        tokens = sum(ticket.lengths)
        with self._changed:
            self._refuse_if_closed()
            if self.waiting_tokens and self.waiting_tokens + tokens > self.most_tokens:
                raise QueueFullError(self._seconds_until(tokens))
            self._lanes[ticket.role].update(dict.fromkeys(ticket.entries))
            self.waiting_tokens += tokens
            self._changed.notify()

    def put_job(self, job: Callable[[], None]) -> None:
        """Ask for something else, which is done between two batches, and one at a time while texts wait."""
        with self._changed:
            self._refuse_if_closed()
            if len(self._jobs) >= self._most_jobs:
                raise QueueFullError(1)
            self._jobs.append(job)
            self._changed.notify()

    def cancel(self, ticket: Ticket) -> None:
        """Take out what still waits of a request whose client has left; `done` is not called any more."""
        with self._changed:
            ticket.cancelled = True
            self._take_out(ticket.role, [entry for entry in ticket.entries if entry in self._lanes[ticket.role]])
            ticket.entries.clear()

    def take(self, *, wait: bool) -> Work | None:
        """What to do next; None if there is nothing, which with `wait` only happens at the end."""
        with self._changed:
            while wait and not self._closed and not self._jobs and not any(self._lanes.values()):
                self._changed.wait()
            self._was_job = bool(self._jobs) and not (self._was_job and any(self._lanes.values()))
            if self._was_job:
                return Work(None, job=self._jobs.popleft())
            role = self._next_role()
            return None if role is None else self._batch(role)

    def _next_role(self) -> Role | None:
        queries, documents = self._lanes["query"], self._lanes["document"]
        if queries and not (documents and self._in_a_row >= self._queries_in_a_row):
            self._in_a_row += 1
            return "query"
        self._in_a_row = 0
        return "document" if documents else None

    def _batch(self, role: Role) -> Work:
        seen = list(islice(self._lanes[role], _LOOKED_AT))
        chosen = next(batch for batch in self._plan(role, [entry.tokens for entry in seen]) if 0 in batch)
        batch = [seen[place] for place in sorted(chosen)]
        return Work(role, batch, self._take_out(role, batch))

    def _take_out(self, role: Role, entries: Sequence[Entry]) -> int:
        """Take texts out of a lane; returns how many tokens they have."""
        lane = self._lanes[role]
        for entry in entries:
            del lane[entry]
        tokens = sum(entry.tokens for entry in entries)
        self.waiting_tokens -= tokens
        return tokens

    def finished(self, work: Work, results: Sequence[Any], seconds: float) -> None:
        """Hand the results of a batch to their requests."""
        if seconds > 0:
            rate = work.tokens / seconds
            self._rate = rate if not self._rate else 0.9 * self._rate + 0.1 * rate
        for entry, result in zip(work.entries, results, strict=True):
            ticket = entry.ticket
            if isinstance(result, BaseException):
                self.failed(ticket, result)
                continue
            ticket.results[entry.place] = result
            ticket.missing -= 1
            if not ticket.missing and not ticket.cancelled:
                ticket.entries.clear()  # which know their ticket: nothing must wait for the garbage collector
                ticket.done(ticket.results, None)

    def failed(self, ticket: Ticket, error: BaseException) -> None:
        """Give a request up; what still waits of it goes."""
        if not ticket.cancelled:
            self.cancel(ticket)
            ticket.done(None, error)

    def close(self) -> None:
        """Take nothing more in; what waits is still handed out."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def _refuse_if_closed(self) -> None:
        if self._closed:
            raise ClosedError("The server is shutting down.")

    def _seconds_until(self, tokens: int) -> int:
        """When there will be room, as far as is known."""
        missing = max(0, self.waiting_tokens + tokens - self.most_tokens)
        return max(1, min(60, round(missing / self._rate))) if self._rate else 1
