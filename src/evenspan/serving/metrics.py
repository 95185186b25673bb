"""What a server counts, for Prometheus; nothing of what texts say."""

from __future__ import annotations

from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
_TOKENS = tuple(2**power for power in range(5, 18))


class Metrics:
    """The figures of one application."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        take: dict[str, Any] = {"registry": self.registry}
        self.requests = Counter("evenspan_requests", "Answered requests", ["path", "status"], **take)
        self.seconds = Histogram(
            "evenspan_request_seconds", "From the first byte to the response", ["path"], buckets=_SECONDS, **take
        )
        self.texts = Counter("evenspan_texts", "Encoded texts", ["input_type"], **take)
        self.tokens = Counter("evenspan_tokens", "Encoded tokens", ["input_type"], **take)
        self.truncated = Counter("evenspan_truncated_texts", "Truncated texts", ["input_type"], **take)
        self.left = Counter("evenspan_clients_left", "Clients that left before the response", **take)
        self.batches = Histogram("evenspan_batch_tokens", "Tokens in a batch", ["input_type"], buckets=_TOKENS, **take)
        self.busy = Counter("evenspan_encoding_seconds", "Time in which batches were encoded", **take)
        self.waited = Counter("evenspan_waiting_seconds", "Time of it in which only the GPU was busy", **take)
        self.waiting = Gauge("evenspan_waiting_tokens", "Tokens in the queue", **take)

    def text(self) -> bytes:
        """All figures, as Prometheus reads them."""
        return generate_latest(self.registry)
