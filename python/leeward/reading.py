"""Reading of results, recordings of servers, traces of the profiler, and data sets of sweeps."""

from __future__ import annotations

import math
import os
import warnings
from pathlib import Path
from typing import Any

from . import _leeward
from .errors import ResultsError
from .frames import frame
from .inline import framed
from .results import Results, write_page
from .values import path_of, refused, text, whole


class Recorded:
    """A recording of a server: every call to its controller, with the answer.

    `damage`: what is wrong with a recording that is cut off, as that of a killed server; its whole
    entries are here. None: it is complete.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.table, self.damage = _leeward.recording(str(path))
        if self.damage is not None:
            warnings.warn(f"{path}: {self.damage}", stacklevel=3)

    def frame(self, kind: str = "polars") -> Any:
        """Entries in order, one row each, as a frame of `polars`, `pandas` or `arrow`.

        `time_us` counts from the start in µs. `event` is `request`, `reply`, `tick` or another
        call. Columns that do not belong to an event have no value in its row.
        """
        return frame(self.table, kind)

    def __repr__(self) -> str:
        end = "" if self.damage is None else f", {self.damage}"
        return f"<recording {self.path} of {len(self.table)} entries{end}>"


class Timeline:
    """The timeline of a request across threads, as `leeward profile timeline` draws it.

    `page` is an HTML page, which a notebook shows; `text` is the form for a terminal.
    """

    def __init__(self, page: str, text: str) -> None:
        self.page = page
        self.text = text

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the timeline as one self-contained HTML page."""
        write_page(path, self.page)

    def __repr__(self) -> str:
        return self.text

    def _repr_html_(self) -> str:
        return framed(self.page, "timeline")


class Trace:
    """A trace of the profiler."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def requests(self, kind: str = "polars", *, request_fn: str | None = None) -> Any:
        """Requests in the order of their ends, as a frame of `polars`, `pandas` or `arrow`.

        Columns: `id`; `start_us` and `end_us` from the start of the trace; `latency_us`;
        `worked_us`, in which threads had the request, also while they waited; `queued_us`, its time
        in queues; `threads`; `weight`, the requests that it stands for, where only some of the fast
        ones were recorded. Times are in µs.

        `request_fn`: the function whose calls are requests, if the program marks none. Raises
        `ResultsError` if the trace has no such requests.
        """
        return frame(_leeward.trace_requests(str(self.path), _function(request_fn)), kind)

    def timeline(self, id: int | None = None, *, request_fn: str | None = None) -> Timeline:
        """The timeline of the request with this id, or of the slowest request.

        It has the functions and the waits of the request's threads, and for each lock the thread
        that held it. Raises `ResultsError` if the trace has no such request.
        """
        if id is not None:
            id = whole("id", id, 0, 2**64 - 1, ResultsError)
        return Timeline(*_leeward.trace_timeline(str(self.path), id, _function(request_fn)))

    def events(self, kind: str = "polars", *, from_us: float | None = None, to_us: float | None = None) -> Any:
        """Events in order of time, as a frame: calls, waits for locks, holds, thread switches.

        `from_us`, `to_us`: the part of the trace to read, in µs from its start; by default all of
        it.
        """
        for name, at in (("from_us", from_us), ("to_us", to_us)):
            if at is not None and (isinstance(at, bool) or not isinstance(at, int | float) or math.isnan(at)):
                raise refused(name, at, "a number of microseconds, or None", ResultsError)
        if from_us is not None and to_us is not None and from_us > to_us:
            raise refused("to_us", to_us, f"a time from {from_us} on", ResultsError)
        return frame(_leeward.trace_events(str(self.path), from_us, to_us), kind)

    def __repr__(self) -> str:
        return f"<trace {self.path}>"


def _function(name: str | None) -> str | None:
    """Checks the name of a function, if one is given."""
    return None if name is None else text("request_fn", name, "the name of a function, or None", ResultsError)


def read(path: str | os.PathLike[str]) -> Any:
    """Reads a file or folder that Leeward has written.

    - A results folder or its `result.json`: `Results`.
    - The data set of a sweep, a folder with `_sweep.json`: a `Sweep`.
    - A recording of a server (`leeward record`): `Recorded`.
    - A trace of the profiler, its folder or a file of it: a `Trace`, which reads its files later.

    Raises `ResultsError` for anything else, and `SweepError` for a damaged data set.
    """
    path = path_of("path", path, ResultsError)
    if not path.exists():
        raise ResultsError(f"{path}: there is nothing there")
    if path.is_dir():
        if (path / "_sweep.json").is_file():
            from .sweeps import opened

            return opened(path)
        if (path / "result.json").is_file():
            return Results(_leeward.Results.read(str(path)))
        if not any(path.glob("*.lwt")):
            raise ResultsError(f"{path}: a folder without result.json, _sweep.json and segments of a trace (*.lwt)")
        return Trace(path)
    if path.suffix == ".json":
        return Results(_leeward.Results.read(str(path)))
    if begins_with(path, _leeward.RECORDING):
        return Recorded(path)
    if begins_with(path, _leeward.TRACE):
        return Trace(path)
    raise ResultsError(f"{path}: neither a recording nor a trace")


def begins_with(path: Path, magic: bytes) -> bool:
    """True if the file begins with these bytes. Raises `ResultsError` if it can't be read."""
    try:
        with path.open("rb") as file:
            return file.read(len(magic)) == magic
    except OSError as error:
        raise ResultsError(f"{path}: {error.strerror}") from None
