"""Results, recordings of servers and traces of the profiler, read back."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from . import _leeward
from .errors import ResultsError
from .frames import frame
from .inline import framed
from .results import Results
from .values import path_of, refused, text, whole


class Recorded:
    """A recording of a server's controller: every call that it was asked, with its answer."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.table = _leeward.recording(str(path))

    def frame(self, kind: str = "polars") -> Any:
        """Entries in their order: `time_us` from the beginning, `event`, and what belongs to it."""
        return frame(self.table, kind)

    def __repr__(self) -> str:
        return f"<recording {self.path} of {len(self.table)} entries>"


class Timeline:
    """The timeline of a request across threads, as `leeward profile timeline` draws it. A notebook shows it by itself."""

    def __init__(self, page: str, text: str) -> None:
        self.page = page
        self.text = text

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes it as one HTML page that needs nothing else."""
        Path(path).write_text(self.page, encoding="utf-8")

    def __repr__(self) -> str:
        return self.text

    def _repr_html_(self) -> str:
        return framed(self.page, "timeline")


class Trace:
    """A trace of the profiler."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def requests(self, kind: str = "polars", *, request_fn: str | None = None) -> Any:
        """Requests in the order of their ends: `latency_us`, of which threads worked `worked_us` on it and queues held it `queued_us`.

        `request_fn`: the function whose calls are requests, where the program marks none.
        """
        return frame(_leeward.trace_requests(str(self.path), _function(request_fn)), kind)

    def timeline(self, id: int | None = None, *, request_fn: str | None = None) -> Timeline:
        """What happened during the request with this id, or during the slowest: the functions of its threads, their waits, and who
        held what they waited for."""
        if id is not None:
            id = whole("id", id, 0, 2**64 - 1, ResultsError)
        return Timeline(*_leeward.trace_timeline(str(self.path), id, _function(request_fn)))

    def events(self, kind: str = "polars", *, from_us: float | None = None, to_us: float | None = None) -> Any:
        """Events in the order of time, of all or of a stretch of the trace: calls, waits and holds of locks, switches."""
        for name, at in (("from_us", from_us), ("to_us", to_us)):
            if at is not None and (isinstance(at, bool) or not isinstance(at, int | float)):
                raise refused(name, at, "a number of microseconds, or None", ResultsError)
        return frame(_leeward.trace_events(str(self.path), from_us, to_us), kind)

    def __repr__(self) -> str:
        return f"<trace {self.path}>"


def _function(name: str | None) -> str | None:
    """The name of a function, if one is given."""
    return None if name is None else text("request_fn", name, "the name of a function, or None", ResultsError)


def read(path: str | os.PathLike[str]) -> Results | Recorded | Trace | Any:
    """Reads what Leeward wrote: a results folder or its `result.json`, a recording of a server (`leeward record`), a trace of the
    profiler, or the data set of a sweep (a folder with `_sweep.json`), as a `Sweep`.

    Raises `ResultsError` for anything else.
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
        return Trace(path)
    if path.suffix == ".json":
        return Results(_leeward.Results.read(str(path)))
    return Recorded(path) if is_recording(path) else Trace(path)


def is_recording(path: Path) -> bool:
    """Whether a file begins as a recording does."""
    with path.open("rb") as file:
        return file.read(len(_leeward.RECORDING)) == _leeward.RECORDING
