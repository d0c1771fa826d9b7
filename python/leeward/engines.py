"""Engines of a sweep: each runs batches of cells on threads, on processes or as tasks of Ray.

Every engine returns the rows in the order of the batches.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, ThreadPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

from . import _leeward
from .errors import ClusterError, SweepError
from .scenario import Scenario
from .values import text, whole

ENGINES = ("auto", "threads", "processes", "ray")
# Retries of a batch whose worker died, before the sweep fails. Runs are pure functions, so a batch
# that kills its worker would kill each new one, too.
RETRIES = 3
# Seconds of one wait for a batch. Python handles Ctrl-C between two waits.
LOOK = 0.1


@dataclass(frozen=True)
class Spec:
    """Settings of a sweep, which all batches share."""

    scenario: Scenario
    axes: list[tuple[str, list[str]]]
    seeds: int
    seed: int
    table: str


@dataclass(frozen=True)
class Batch:
    """The cells `start` to `stop - 1`, for one worker. `last`: it is the last batch of its part."""

    start: int
    stop: int
    part: str
    last: bool


def run_batch(spec: Spec, start: int, stop: int, signal: _leeward.Stop | None = None) -> bytes:
    """Runs these cells; returns a table's bytes. The bytes depend on the cells and `spec` alone.

    `signal`, when set by another thread, ends the runs.
    """
    grid = _leeward.Grid(spec.axes, spec.seeds, spec.seed)
    return spec.scenario.native().run_cells(grid, start, stop, spec.table, signal).to_bytes()


class Runner(Protocol):
    """An engine that has started."""

    workers: int

    def run(self, spec: Spec, batches: list[Batch]) -> Generator[tuple[Batch, bytes], None, None]:
        """Yields each batch with its rows, in order. Its `close` ends runs in progress."""


@contextmanager
def engine(on: str, workers: int | None, address: str | None) -> Iterator[Runner]:
    """Starts the engine called `on`, and ends it with the block.

    `auto` is Ray if `address` or `RAY_ADDRESS` is given or this process uses Ray, otherwise
    threads. `workers`: 1 to 1,024; by default one for each CPU. Raises `SweepError` for another
    value.
    """
    if on not in ENGINES:
        raise SweepError(f"on: there is no engine `{on}`; accepted: {', '.join(ENGINES)}")
    if address is not None:
        address = text("address", address, "HOST:PORT of a Ray cluster", SweepError)
    if workers is not None:
        workers = whole("workers", workers, 1, 1_024, SweepError)
    if on == "auto":
        on = "ray" if address or _ray_is_there() else "threads"
    if on == "ray":
        from .on_ray import ray_runner

        with ray_runner(workers, address) as runner:
            yield runner
    elif on == "processes":
        yield Processes(workers or _cpus())
    else:
        yield Threads(workers or _cpus())


def _ray_is_there() -> bool:
    import sys

    ray = sys.modules.get("ray")
    return bool(os.environ.get("RAY_ADDRESS")) or bool(ray and ray.is_initialized())


def _cpus() -> int:
    return len(os.sched_getaffinity(0))


def in_order(batches: list[Batch], most: int, submit: Callable[[Batch], Future[bytes]], resubmit: Callable[[Batch], Future[bytes]]) -> Iterator[tuple[Batch, bytes]]:
    """Yields batches with their rows, in order. At most `most` are in progress, to bound memory."""
    waiting: deque[tuple[Batch, Future[bytes]]] = deque()
    rest = iter(batches)
    for batch in rest:
        waiting.append((batch, submit(batch)))
        if len(waiting) < most:
            continue
        yield _first(waiting, resubmit)
    while waiting:
        yield _first(waiting, resubmit)


def _first(waiting: deque[tuple[Batch, Future[bytes]]], resubmit: Callable[[Batch], Future[bytes]]) -> tuple[Batch, bytes]:
    """Waits for the oldest batch, and returns it with its rows.

    If its process pool breaks, all waiting batches are submitted anew.
    """
    for attempt in range(RETRIES + 1):
        batch, future = waiting[0]
        while not wait([future], timeout=LOOK, return_when=FIRST_COMPLETED).done:
            pass
        try:
            answer = future.result()
        except BrokenProcessPool as error:
            if attempt == RETRIES:
                raise ClusterError(
                    f"workers died {RETRIES + 1} times over cells {batch.start} to {batch.stop}; each runs the program's file from its begin: what starts the sweep has to stand below `if __name__ == \"__main__\":`"
                ) from error
            again = [(batch, resubmit(batch)) for batch, _ in waiting]
            waiting.clear()
            waiting.extend(again)
            continue
        waiting.popleft()
        return batch, answer
    raise AssertionError("the last attempt returns or raises")


class Threads:
    """An engine of threads in this process. Runs do not hold the interpreter."""

    def __init__(self, workers: int) -> None:
        self.workers = workers

    def run(self, spec: Spec, batches: list[Batch]) -> Generator[tuple[Batch, bytes], None, None]:
        signal = _leeward.Stop()
        # A Python controller that decides on every request holds the interpreter: more threads
        # would only wait for it.
        workers = 1 if any(callable(getattr(cls, "request", None)) for _, cls, _ in spec.scenario.python) else self.workers
        pool = ThreadPoolExecutor(workers, thread_name_prefix="leeward")

        def submit(batch: Batch) -> Future[bytes]:
            return pool.submit(run_batch, spec, batch.start, batch.stop, signal)

        try:
            yield from in_order(batches, 4 * workers, submit, submit)
        finally:
            # Runs in progress see the signal within milliseconds: no thread of this sweep is left.
            signal.set()
            pool.shutdown(wait=True, cancel_futures=True)


class Processes:
    """An engine of processes on this machine. If one dies, a new pool runs its batches again."""

    def __init__(self, workers: int) -> None:
        self.workers = workers
        self._pool: ProcessPoolExecutor | None = None

    def run(self, spec: Spec, batches: list[Batch]) -> Generator[tuple[Batch, bytes], None, None]:
        import multiprocessing

        if multiprocessing.current_process().daemon:
            raise SweepError("on: a daemonic process has no processes of its own; accepted: threads, or a process with daemon=False")
        shipped = pickled(spec)
        self._pool = self._new()

        def submit(batch: Batch) -> Future[bytes]:
            assert self._pool is not None
            try:
                return self._pool.submit(run_shipped, shipped, batch.start, batch.stop)
            except BrokenProcessPool as error:
                broken: Future[bytes] = Future()
                broken.set_exception(error)
                return broken

        def resubmit(batch: Batch) -> Future[bytes]:
            if getattr(self._pool, "_broken", False):
                self._end()
                self._pool = self._new()
            return submit(batch)

        try:
            yield from in_order(batches, 4 * self.workers, submit, resubmit)
        finally:
            self._end()

    def _new(self) -> ProcessPoolExecutor:
        import multiprocessing

        # Not by fork: the child of a process with threads may hang on a lock that a thread held.
        context = multiprocessing.get_context("spawn")
        return ProcessPoolExecutor(self.workers, mp_context=context, initializer=follow_parent)

    def _end(self) -> None:
        """Ends the workers and waits for them.

        A child of `multiprocessing` exits without the interpreter's shutdown, which otherwise stops
        the pool. Without this call the child would wait for its workers for ever.
        """
        pool, self._pool = self._pool, None
        if pool is None:
            return
        # Batches in progress can be lost: the sweep has all rows, or has failed.
        for worker in list((getattr(pool, "_processes", None) or {}).values()):
            worker.terminate()
        pool.shutdown(wait=True, cancel_futures=True)


def follow_parent() -> None:
    """Makes a worker ignore Ctrl-C, and end when its parent ends, even if that is killed."""
    import multiprocessing
    import signal
    from multiprocessing.connection import wait as wait_for

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    if parent is None:
        return

    def watch() -> None:
        wait_for([parent.sentinel])
        os._exit(1)

    threading.Thread(target=watch, name="leeward-parent", daemon=True).start()


def pickled(spec: Spec) -> bytes:
    """Serializes the spec; with cloudpickle installed classes by value, otherwise by name."""
    import pickle

    try:
        import cloudpickle
    except ImportError:
        _check_names(spec)
        return pickle.dumps(spec)
    return bytes(cloudpickle.dumps(spec))


def _check_names(spec: Spec) -> None:
    """Raises `SweepError` for a class that another process does not find by its name."""
    import sys

    for _, cls, _ in spec.scenario.python:
        has_file = cls.__module__ != "__main__" or hasattr(sys.modules["__main__"], "__file__")
        if "<locals>" in cls.__qualname__ or not has_file:
            raise SweepError(
                f"on: other processes don't find the class {cls.__qualname__} by its name; accepted: threads, a class at the top level of a file, or cloudpickle installed"
            )


def run_shipped(shipped: bytes, start: int, stop: int) -> bytes:
    """Runs a batch of a serialized spec: see `run_batch`."""
    import pickle

    spec: Any = pickle.loads(shipped)
    return run_batch(spec, start, stop)
