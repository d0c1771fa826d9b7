"""Sweeps: runs of a scenario over a grid of values, on threads, processes or Ray.

The cells of the grid have an order. The rows have the same order and bytes on every engine.
"""

from __future__ import annotations

import hashlib
import inspect
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import _leeward
from .controller import Controller
from .datasets import Dataset
from .engines import Batch, Spec, engine
from .errors import SweepError
from .frames import frame
from .progress import bar
from .scenario import Scenario
from .values import SEED_MAX, path_of, refused, text, whole, written

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Runs in a part of a data set: some hundred kilobytes, and the most that an interrupt loses.
PART = 500
# Maximum of runs in a batch. Sending a batch to a worker and back costs about a millisecond.
BATCH = 50


class Sweep:
    """Rows of a sweep, in memory or in a data set; in the order of the grid, the seed fastest."""

    def __init__(self, table: _leeward.Table | None, dataset: Dataset | None = None) -> None:
        self._table = table
        self.dataset = dataset

    def table(self, name: str | None = None) -> _leeward.Table:
        """All rows as one table in memory. `name` has no effect: the sweep has one table."""
        if self._table is not None:
            return self._table
        assert self.dataset is not None
        return self.dataset.table()

    def frame(self, kind: str = "polars") -> Any:
        """All rows as a frame of `polars`, `pandas` or `arrow`; columns as in `Results.frame`."""
        return frame(self.table(), kind)

    def to_bytes(self) -> bytes:
        """All rows as bytes, the same on every engine; `Table.from_bytes` reads them."""
        return self.table().to_bytes()

    def plot(self, y: str = "goodput", x: str | None = None, by: str = "label", **options: Any) -> Figure:
        """Draws lines: see `leeward.plot.plot`."""
        from . import plot as drawing

        return drawing.plot(self, y, x, by, **options)

    def heat(self, z: str = "goodput", x: str = "demand", y: str = "clients", **options: Any) -> Figure:
        """Draws a heat map: see `leeward.plot.heat`."""
        from . import plot as drawing

        return drawing.heat(self, z, x, y, **options)

    def __len__(self) -> int:
        return len(self.table())

    def __repr__(self) -> str:
        where = f" in {self.dataset.folder}" if self.dataset else ""
        lacks = f", unfinished: {self.dataset.progress}" if self.dataset and not self.dataset.complete else ""
        return f"<sweep{where}{lacks}>"


@dataclass(frozen=True)
class _Part:
    """The cells `start` to `stop - 1`, whose rows are in one file or table."""

    name: str
    start: int
    stop: int


def sweep(
    scenario: Scenario,
    grid: Mapping[str, Sequence[Any]],
    seeds: int = 1,
    *,
    seed: int = 1,
    on: str = "auto",
    workers: int | None = None,
    out: str | os.PathLike[str] | None = None,
    table: str = "points",
    progress: bool | None = None,
    address: str | None = None,
) -> Sweep:
    """Runs a scenario for every combination of the grid's values, with `seeds` seeds each.

    - `grid`: keys, and a list of values for each. `controller` selects controllers as
      `Scenario.controllers` does. `demand`, `clients`, `service`, `rtt`, `slo`, `cores`, `p` and
      `r` are short names. Other keys are those of the scenario's file. A number for a demand is a
      multiple of the capacity.
    - `seeds`, `seed`: the number of seeds, and the first of them.
    - `on`: `threads`, `processes`, `ray` or `auto`. The rows are the same on each. `auto` is Ray if
      `address` or `RAY_ADDRESS` is given or this process uses Ray, otherwise threads.
    - `workers`: 1 to 1,024; by default one per CPU. `address`: the Ray cluster to join.
    - `out`: a folder for a Parquet data set, with a folder per variant. Memory stays bounded, and
      the same call continues an interrupted sweep. Without `out` the rows stay in memory.
    - `table`: the table of the results to keep, such as `windows`.
    - `progress`: as in `Scenario.run`.

    Raises `SweepError` for a wrong argument or another sweep's data set, `ScenarioError` for a
    wrong value of the grid, `ClusterError` if workers can't be reached or die again and again, and
    exceptions of Python controllers.
    """
    if not isinstance(scenario, Scenario):
        raise refused("scenario", scenario, 'a scenario, as leeward.scenario("bw-overall") gives', SweepError)
    if not isinstance(grid, Mapping):
        raise refused("grid", grid, 'a dict of keys and their values, such as {"demand": [0.8, 1.2]}', SweepError)
    table = text("table", table, "the name of a table, such as points", SweepError)
    folder = None if out is None else path_of("out", out, SweepError)
    seeds = whole("seeds", seeds, 1, 2**32 - 1, SweepError)
    seed = whole("seed", seed, 0, SEED_MAX - seeds, SweepError)
    scenario, axes = _axes(scenario, grid)
    native_grid = _leeward.Grid(axes, seeds, seed)
    scenario.native()  # raises before a worker starts
    spec = Spec(scenario, axes, seeds, seed, table)
    first_cells(scenario, native_grid)
    parts = list(_parts(native_grid, axes, seeds, one=folder is None))
    dataset = None
    if folder is not None:
        dataset = Dataset.create(folder, _plan(spec), [part.name for part in parts])
        parts = [part for part in parts if not dataset.has(part.name)]
    tables: list[_leeward.Table] = []
    total = sum(part.stop - part.start for part in parts)
    with bar(scenario.name.removesuffix(".toml"), "run", progress) as tell, engine(on, workers, address) as runner:
        batches = list(_batches(parts, total, runner.workers))
        done = 0
        collected: list[_leeward.Table] = []
        if tell:
            tell(0, total)
        # Closed also if a part can't be written, so that no worker runs on.
        with closing(runner.run(spec, batches)) as answers:
            for batch, answer in answers:
                done += batch.stop - batch.start
                if tell:
                    tell(done, total)
                collected.append(_leeward.Table.from_bytes(answer))
                if batch.last:
                    rows = _leeward.Table.concat(collected)
                    collected = []
                    if dataset is None:
                        tables.append(rows)
                    else:
                        dataset.write(batch.part, rows)
    if dataset is not None:
        return Sweep(None, dataset)
    return Sweep(_leeward.Table.concat(tables).dense())


def digest_of(cls: type) -> str:
    """Digest of a class's source, with its base classes; of its code where it has no source."""
    digest = hashlib.sha256(repr(getattr(cls, "params", {})).encode())
    for one in cls.__mro__:
        if one in (object, Controller):
            continue
        try:
            digest.update(inspect.getsource(one).encode())
        except (OSError, TypeError):
            for name, member in sorted(vars(one).items()):
                if name in ("__firstlineno__", "__doc__"):
                    continue
                code = getattr(member, "__code__", None)
                digest.update(f"{name} {code_of(code) if code else member}".encode() if code or isinstance(member, int | float | str | dict) else b"")
    return digest.hexdigest()[:16]


def code_of(code: Any) -> str:
    """What a function does, without its place in a file."""
    inner = [code_of(one) if hasattr(one, "co_code") else repr(sorted(map(repr, one)) if isinstance(one, frozenset) else one) for one in code.co_consts]
    return f"{code.co_code.hex()} {code.co_names} {code.co_varnames} {inner}"


def files_of(texts: list[str], folder: Path) -> dict[str, str]:
    """Digests of the files that scenario texts name, such as `file:times.txt`."""
    names = sorted({name for text in texts for name in re.findall(r"file:([^\s\"',\]]+)", text)})
    paths = {name: next((path for path in (folder / name, Path(name)) if path.is_file()), None) for name in names}
    return {name: hashlib.sha256(path.read_bytes()).hexdigest() for name, path in paths.items() if path}


def opened(folder: Path) -> Sweep:
    """Opens the data set of an earlier sweep; raises `SweepError` if the folder has none."""
    return Sweep(None, Dataset.open(folder))


def _axes(scenario: Scenario, grid: Mapping[str, Sequence[Any]]) -> tuple[Scenario, list[tuple[str, list[str]]]]:
    """The scenario with all controllers of the grid; and the axes, with values as in overrides."""
    axes: list[tuple[str, list[str]]] = []
    for key, values in grid.items():
        key = text("grid", key, 'keys of the scenario, such as "demand"', SweepError)
        if isinstance(values, str | bytes | bytearray | Mapping) or not hasattr(values, "__iter__"):
            raise refused(key, values, "a list of values", SweepError)
        values = list(values)
        if not values:
            raise SweepError(f"{key}: no values; accepted: at least one")
        if key in ("run.seeds", "id", "title"):
            raise SweepError(f"{key}: no axis; accepted: seeds=… for the number of seeds, and keys that change a run")
        if key == "controller":
            scenario = scenario.controllers(*values)
            axes.append((key, [one if isinstance(one, str) else one.__name__ for one in values]))
        else:
            axes.append((key, [written(key, value) for value in values]))
    if scenario.only is not None and "controller" not in grid:
        axes.insert(0, ("controller", list(scenario.only)))
    return scenario, axes


def first_cells(scenario: Scenario, grid: _leeward.Grid) -> None:
    """Checks the values of the axes before the first run, not hours later.

    A grid of less than 20,000 cells has each value checked once. In a larger grid this checks the
    values of evenly spaced cells alone, at least 10,000 of them.
    """
    seen: set[tuple[str, str]] = set()
    for index in range(0, len(grid), max(1, len(grid) // 10_000)):
        values, _ = grid.cell(index)
        new = [pair for pair in values if pair not in seen]
        if new:
            seen.update(new)
            scenario.native().check_cell(grid, index)


def _parts(grid: _leeward.Grid, axes: list[tuple[str, list[str]]], seeds: int, *, one: bool) -> Iterator[_Part]:
    """Splits the grid into parts of consecutive cells of one variant, at most `PART` cells each.

    With `one` the whole grid is one part.
    """
    if one:
        yield _Part("part", 0, len(grid))
        return
    start, current, number = 0, _variant(grid, 0), 0
    for index in range(1, len(grid) + 1):
        variant = _variant(grid, index) if index < len(grid) else None
        if variant != current or index - start == PART:
            yield _Part(f"variant={_folder(current)}/part-{number:06}.parquet", start, index)
            start, current, number = index, variant, number + 1


def _variant(grid: _leeward.Grid, index: int) -> str | None:
    values, _ = grid.cell(index)
    return dict(values).get("controller", "all")


def _folder(label: str | None) -> str:
    """A label as the name of a folder, with `/`, `:` and `%` escaped."""
    return (label or "all").replace("%", "%25").replace("/", "%2F").replace(":", "%3A")


def _batches(parts: list[_Part], total: int, workers: int) -> Iterator[Batch]:
    """Splits parts into batches of at most `BATCH` runs.

    Each worker gets about eight batches or more, so that all workers are busy until the end.
    """
    size = max(1, min(BATCH, total // (workers * 8) or 1))
    for part in parts:
        for start in range(part.start, part.stop, size):
            stop = min(start + size, part.stop)
            yield Batch(start, stop, part.name, stop == part.stop)


def _plan(spec: Spec) -> dict[str, Any]:
    """The facts that identify a sweep. A data set with other facts is another sweep's."""
    scenario = spec.scenario
    python = [f"{label}={cls.__module__}.{cls.__qualname__} {digest_of(cls)}" for label, cls, _ in scenario.python]
    texts = [scenario.text, *scenario.overrides, *(value for _, values in spec.axes for value in values)]
    return {
        "format": 2,
        "scenario": scenario.name,
        "text_sha256": hashlib.sha256(scenario.text.encode()).hexdigest(),
        "overrides": list(scenario.overrides),
        "files": files_of(texts, Path(scenario.folder)),
        "quick": scenario.is_quick,
        "controllers": python,
        "axes": [[key, values] for key, values in spec.axes],
        "seeds": spec.seeds,
        "seed": spec.seed,
        "table": spec.table,
        "leeward": _leeward.__version__,
    }


__all__ = ["Controller", "Sweep", "opened", "sweep"]
