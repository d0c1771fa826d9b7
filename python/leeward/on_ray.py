"""Sweeps on Ray: on this machine, or on a cluster that is there."""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import Any

from .engines import RETRIES, Batch, Spec, pickled, run_shipped
from .errors import ClusterError
from .extras import need

# Seconds that a cluster which was named has to answer.
PATIENCE = 20


class OnRay:
    """Ray's tasks, as many under way as keep all CPUs busy."""

    def __init__(self, ray: Any, workers: int) -> None:
        self.ray = ray
        self.workers = workers

    def run(self, spec: Spec, batches: list[Batch]) -> Generator[tuple[Batch, bytes], None, None]:
        ray = self.ray
        shipped = ray.put(pickled(spec))
        # Runs are pure: a task whose worker or node is gone is run again elsewhere.
        task = ray.remote(num_cpus=1, max_retries=RETRIES)(run_shipped)
        waiting: deque[tuple[Batch, Any]] = deque()
        rest = iter(batches)
        try:
            for batch in rest:
                waiting.append((batch, task.remote(shipped, batch.start, batch.stop)))
                if len(waiting) >= 3 * self.workers:
                    yield self._first(waiting)
            while waiting:
                yield self._first(waiting)
        finally:
            for _, answer in waiting:
                ray.cancel(answer, force=True)

    def _first(self, waiting: deque[tuple[Batch, Any]]) -> tuple[Batch, bytes]:
        batch, answer = waiting[0]
        try:
            got: bytes = self.ray.get(answer)
        except self.ray.exceptions.RayTaskError as error:
            raise error.cause if isinstance(error.cause, Exception) else error from None
        except self.ray.exceptions.RayError as error:
            raise ClusterError(f"cells {batch.start} to {batch.stop}: {str(error).splitlines()[0]}") from error
        waiting.popleft()
        return batch, got


@contextmanager
def ray_runner(workers: int | None, address: str | None) -> Iterator[OnRay]:
    """Ray that runs already, or Ray that is started, or joined, and left at the end."""
    ray = need("ray")
    need("cloudpickle")
    ours = not ray.is_initialized()
    if ours:
        join(ray, workers, address)
    try:
        cpus = int(ray.cluster_resources().get("CPU", 1))
        yield OnRay(ray, min(workers, cpus) if workers else max(1, cpus))
    finally:
        if ours:
            ray.shutdown()


def join(ray: Any, workers: int | None, address: str | None) -> None:
    """Joins the cluster at `address` (or of `RAY_ADDRESS`), or starts one of this machine. A `ClusterError` if there is none."""
    import os

    named = address or os.environ.get("RAY_ADDRESS")
    if named and named not in ("auto", "local"):
        reach(named)
    options: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR", "include_dashboard": False}
    if named:
        options = {"address": named, "log_to_driver": False, "logging_level": "ERROR"}
    elif workers:
        options["num_cpus"] = workers
    try:
        ray.init(**options)
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise ClusterError(f"no cluster at {named or 'this machine'}: {str(error).splitlines()[0]}") from error


def reach(address: str) -> None:
    """Ray tries for minutes and ends the process when nobody answers; a connection tells sooner."""
    import socket

    host, _, port = address.removeprefix("ray://").rpartition(":")
    try:
        socket.create_connection((host, int(port)), PATIENCE).close()
    except (OSError, ValueError) as error:
        raise ClusterError(f"no cluster at {address}: {error}") from error
