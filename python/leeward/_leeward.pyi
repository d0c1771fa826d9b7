"""The native part of the package, in Rust (python/src)."""

from collections.abc import Callable
from typing import Any

__version__: str
RECORDING: bytes
TRACE: bytes

class Stop:
    """A request to stop, which several calls may share. After `set`, runs in progress end."""

    def __init__(self) -> None: ...
    def set(self) -> None: ...

class Table:
    """Columns of equal length in Arrow's layout. Libraries that read Arrow use it without a copy.

    Values are numbers, whole numbers of 64 bits, booleans or texts. Methods raise `ResultsError`.
    """

    def __len__(self) -> int:
        """Number of rows."""
    @property
    def names(self) -> list[str]:
        """Names of the columns, in order."""
    def column(self, name: str) -> list[Any]:
        """Values of a column, one per row; None where a row has no value."""
    def dense(self) -> Table:
        """The table without columns in which no row has a value."""
    def without(self, name: str) -> Table:
        """The table without the column `name`, if it has one."""
    def to_bytes(self) -> bytes:
        """Bytes for `from_bytes`. Equal tables have equal bytes."""
    @staticmethod
    def from_bytes(bytes: bytes) -> Table:
        """The table that `to_bytes` has written."""
    @staticmethod
    def concat(tables: list[Table]) -> Table:
        """The rows of all tables, in order. The tables must have the same columns."""
    def write_parquet(self, path: str) -> None:
        """Writes a Parquet file."""
    @staticmethod
    def read_parquet(paths: list[str]) -> Table:
        """The rows of Parquet files that `write_parquet` has written, in order."""
    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Arrow's C stream interface; the consumer shares the table's memory."""

class Results:
    """Results of a run; `leeward.Results` has the documentation."""

    @staticmethod
    def read(path: str) -> Results: ...
    @staticmethod
    def from_json(bytes: bytes) -> Results: ...
    def to_json(self) -> bytes: ...
    def write(self, folder: str) -> None: ...
    def report(self) -> str: ...
    def table(self, name: str) -> Table: ...
    def claims_json(self) -> str: ...
    @property
    def scenario(self) -> str: ...
    @property
    def title(self) -> str: ...
    @property
    def plant(self) -> str: ...
    @property
    def seed(self) -> int: ...
    @property
    def quick(self) -> bool: ...
    @property
    def overrides(self) -> list[str]: ...
    @property
    def doubts(self) -> list[str]: ...

class Grid:
    """Every combination of the axes' values, with `seeds` seeds from `seed` on.

    The last axis changes faster than the first, and the seed fastest.
    """

    def __init__(self, axes: list[tuple[str, list[str]]], seeds: int, seed: int) -> None: ...
    def __len__(self) -> int: ...
    def cell(self, index: int) -> tuple[list[tuple[str, str]], int]:
        """Values of the axes in this cell, as pairs of key and value, and its seed."""

class Scenario:
    """A checked scenario. `controllers` are tuples of label, class and parameters as TOML."""

    def __init__(
        self,
        name: str,
        text: str,
        folder: str,
        overrides: list[str],
        quick: bool,
        controllers: list[tuple[str, type, list[tuple[str, str]]]],
    ) -> None: ...
    @property
    def id(self) -> str: ...
    @property
    def title(self) -> str: ...
    @property
    def source(self) -> str: ...
    @property
    def description(self) -> str: ...
    @property
    def seeds(self) -> int: ...
    @property
    def labels(self) -> list[str]: ...
    @property
    def bases(self) -> list[str]: ...
    @property
    def variants(self) -> list[tuple[str, str]]: ...
    def run(
        self,
        seed: int,
        seeds: int | None = None,
        labels: list[str] | None = None,
        threads: int | None = None,
        progress: Callable[[int, int], None] | None = None,
        stop: Stop | None = None,
    ) -> Results:
        """Runs the scenario; calls `progress(done, total)` about ten times a second."""
    def check_cell(self, grid: Grid, index: int) -> None:
        """Checks the scenario of one cell without running it."""
    def run_cells(self, grid: Grid, start: int, stop_at: int, table: str = "points", stop: Stop | None = None) -> Table:
        """Runs the cells `start` to `stop_at - 1` on one thread; returns the rows of `table`."""

class Environment:
    """Facts about the server that a controller knows and can't change."""

    cores: int
    """Cores of the server."""
    rtt_us: float
    """Network round trip without queueing, in µs."""
    slo_us: float
    """The latency objective, in µs."""

class Signals:
    """State of the server at a tick, and counts of events since the last tick."""

    now_us: float
    """Time from the start of the run, in µs."""
    delay_us: float
    """Queueing delay: `packet_delay_us` and `run_delay_us` together, in µs."""
    packet_delay_us: float
    """Age of the oldest packet that waits on any core, in µs."""
    run_delay_us: float
    """Age of the oldest task that waits on any core, in µs."""
    arrivals: int
    """Requests received."""
    completions: int
    """Requests answered with a result."""
    drops: int
    """Requests rejected, for any reason."""
    lock_drops: int
    """Of these, requests that were rejected at a lock."""

class Arrival:
    """A request that the server has received."""

    now_us: float
    """Time from the start of the run, in µs."""
    delay_us: float
    """Queueing delay of the server, in µs."""
    demand: int
    """Requests that still wait at the client."""
    priority: int
    """Priority from 1 (most important) to 128 (least)."""
    random: float
    """A random number from 0 up to, but not including, 1, drawn from the run's seed."""
    tenant: int
    """Tenant for which the request was sent."""
    cost: int
    """Work of the request, in units of an ordinary request of its service."""
    core: int
    """Core that received the request."""

class Pool:
    """The credit pool of a Breakwater server."""

    total: int
    """Credits that the server wants to have issued in all."""
    issued: int
    """Credits that clients hold."""
    sessions: int
    """Registered clients."""

class Recording:
    """Measurements of one load generator or of several; `leeward.Load` has the documentation."""

    def to_bytes(self) -> bytes: ...
    @staticmethod
    def from_bytes(bytes: bytes) -> Recording: ...
    @property
    def generators(self) -> int: ...
    @property
    def seconds(self) -> float: ...
    @property
    def slo_us(self) -> float: ...
    @property
    def totals(self) -> dict[str, int]: ...
    @property
    def measured(self) -> dict[str, int]: ...
    @property
    def failures(self) -> dict[str, int]: ...
    @property
    def throughput_rps(self) -> float: ...
    @property
    def goodput_rps(self) -> float: ...
    @property
    def kept(self) -> bool: ...
    def buckets(self, which: str) -> list[tuple[float, int]]: ...
    def percentiles(self, which: str) -> dict[str, float]: ...

def load(
    address: str,
    demand_rps: float,
    clients: int,
    duration: str,
    warmup: str,
    service: str,
    controller: str,
    params: list[tuple[str, str]],
    slo: str,
    rtt: str,
    seed: int,
    index: int,
    of: int,
    cpu: int | None = None,
    busy: bool = False,
    stop: Stop | None = None,
) -> Recording:
    """Runs generator `index` of `of`: its share of the schedule that `seed` draws."""

def merge(recordings: list[Recording]) -> Recording:
    """The measurements of all generators of a run; counts and buckets add up."""

def scenarios(id: str | None = None) -> list[str]:
    """Ids of the built-in scenarios; with `id` the text of that scenario alone."""

def controllers() -> list[tuple[str, str, str, list[tuple[str, str, str, list[str]]]]]:
    """Controllers: name, summary, source, parameters.

    A parameter is its name, default, summary, and values for a search.
    """

def looks(variants: list[tuple[str, str]]) -> tuple[list[tuple[str, str, int]], list[str]]:
    """Styles of variants, given as pairs of label and controller, and the colours of other series.

    A style is a label, a colour and the number of a marker.
    """

def fields() -> list[tuple[str, str, str]]:
    """Fields of all tables: name, heading, unit."""

def recording(path: str) -> tuple[Table, str | None]:
    """Entries of a server's recording, in order, and what is wrong with one that is cut off."""

def trace_events(path: str, from_us: float | None = None, to_us: float | None = None) -> Table:
    """Events of a profiler's trace, in order of time."""

def trace_requests(path: str, request_fn: str | None = None) -> Table:
    """Requests of a profiler's trace, in the order of their ends."""

def trace_timeline(path: str, id: int | None = None, request_fn: str | None = None) -> tuple[str, str]:
    """The timeline of a request: an HTML page, and a text."""
