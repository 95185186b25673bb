"""The same application on Ray Serve: many GPUs and machines, and new replicas for those that are lost."""

from __future__ import annotations

import logging
import os
import signal
import threading
from collections.abc import Callable
from typing import Any

from starlette.types import ASGIApp

from evenspan.serving.app import create_app
from evenspan.serving.settings import ServerSettings

_NAME = "evenspan"
_ONGOING = 1000  # requests in a replica, which batches them itself
_WANTED = 32  # requests in a replica before another is started
_PATIENCE = 120  # seconds, for requests that are running when a replica ends


class Replica:
    """What Ray asks of a replica besides its application."""

    app: Any

    async def check_health(self) -> None:
        """Raise if no batches go through: Ray then starts another replica."""
        await self.app.engine.check()


def deployment(settings: ServerSettings, replicas: tuple[int, int], resources: dict[str, Any]) -> Any:
    """The application of Ray Serve."""
    from ray import serve

    def build() -> ASGIApp:
        return create_app(settings)

    least, most = replicas
    scaling = {"min_replicas": least, "max_replicas": most, "target_ongoing_requests": _WANTED}
    return serve.deployment(
        name=_NAME,
        max_ongoing_requests=_ONGOING,
        ray_actor_options=resources,
        health_check_period_s=5,
        graceful_shutdown_timeout_s=_PATIENCE,
        **({"num_replicas": least} if least == most else {"autoscaling_config": scaling}),
    )(serve.ingress(build)(Replica)).bind()


def run_on_ray(
    settings: ServerSettings,
    host: str,
    port: int,
    replicas: tuple[int, int],
    address: str | None,
    ready: Callable[[str], None],
) -> None:
    """Serve on a cluster until SIGTERM or Ctrl-C."""
    import ray
    from ray import serve

    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nothing is reported to its makers
    where = address or os.environ.get("RAY_ADDRESS") or "local"
    cluster: Any = ray
    cluster.init(address=where, log_to_driver=False, logging_level=logging.WARNING)
    ended = threading.Event()  # only now: Ray has handlers of its own, which abort
    before = {name: signal.signal(name, lambda *_: ended.set()) for name in (signal.SIGTERM, signal.SIGINT)}
    try:
        logging.getLogger("ray.serve").setLevel(logging.WARNING)
        serve.start(http_options={"host": host, "port": port})
        application = deployment(settings, replicas, _resources(ray, settings, replicas[1]))
        serve.run(application, name=_NAME, route_prefix="/")
        ready(f"http://{host}:{port}")
        while not ended.wait(1):  # a wait without end would not be interrupted
            pass
    finally:
        if where == "local":
            serve.shutdown()  # type: ignore[no-untyped-call]
        else:
            serve.delete(_NAME)
        cluster.shutdown()
        for name, handler in before.items():
            signal.signal(name, handler)


def _resources(ray: Any, settings: ServerSettings, replicas: int) -> dict[str, Any]:
    """What each replica gets: a GPU, or its part of the CPUs."""
    there = ray.cluster_resources()
    if there.get("GPU", 0) and settings.device != "cpu":
        return {"num_gpus": 1}
    return {"num_cpus": max(1, min(4, int(there.get("CPU", 1)) // replicas))}
