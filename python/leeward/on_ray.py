"""Sweeps on Ray, on this machine or on a running cluster."""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import Any

from .engines import RETRIES, Batch, Spec, pickled, run_shipped
from .errors import ClusterError
from .extras import need

# Seconds in which a named cluster must accept a connection.
PATIENCE = 20


class OnRay:
    """An engine of Ray's tasks. Three per worker are in progress, so that all CPUs are busy."""

    def __init__(self, ray: Any, workers: int) -> None:
        self.ray = ray
        self.workers = workers

    def run(self, spec: Spec, batches: list[Batch]) -> Generator[tuple[Batch, bytes], None, None]:
        ray = self.ray
        shipped = ray.put(pickled(spec))
        # Runs are pure functions: Ray runs a task again when its worker or node is lost.
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
            # Not by force: Ray 2.60 ends this process if a task is done meanwhile ("Tried to
            # complete task that was not pending").
            for _, answer in waiting:
                ray.cancel(answer)

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
    """Uses the Ray of this process; without one, joins or starts Ray, and leaves it at the end.

    Raises `ClusterError` if there is no cluster at `address`.
    """
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
    """Joins the cluster at `address` or `RAY_ADDRESS`; without either, starts Ray on this machine.

    Raises `ClusterError` if that fails.
    """
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
    """Checks that a cluster accepts a connection within 20 seconds; raises `ClusterError` if not.

    Ray itself would try for minutes, and then end the process.
    """
    import socket

    host, _, port = address.removeprefix("ray://").rpartition(":")
    try:
        socket.create_connection((host, int(port)), PATIENCE).close()
    except (OSError, ValueError) as error:
        raise ClusterError(f"no cluster at {address}: {error}") from error
