"""Results of a scenario."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from . import _leeward
from .errors import ResultsError
from .frames import frame
from .inline import framed
from .values import path_of, text

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Settling:
    """When the runs of a variant had settled.

    `settled`: whether they were stationary when their measurement began, in all seeds but at most
    one in five. `drifting`: number of seeds that were not. `after_s`: start of the measurement of
    the run that took longest, in s.
    """

    label: str
    settled: bool
    after_s: float
    drifting: int = 0


@dataclass(frozen=True)
class Claim:
    """A claim of a paper, with our measurement.

    `paper` is the paper's number, `accepted` the values that confirm it. `measured` is our number
    with its unit, `value` the number alone; None if it could not be computed. `interval` contains
    the median over the seeds with 95 % probability; None for one seed. `settling` has a row for each
    variant that the claim compares; empty on the real plant. There, `late` names the variants with a
    run whose load was late. `note` explains a failure or a difference.
    """

    id: str
    text: str
    paper: str
    measured: str
    accepted: str
    verdict: str
    note: str = ""
    value: float | None = None
    interval: tuple[float, float] | None = None
    settling: tuple[Settling, ...] = ()
    late: tuple[str, ...] = ()


def _claim(fields: dict[str, Any]) -> Claim:
    interval, settling = fields.pop("interval", None), fields.pop("settling", [])
    late = fields.pop("late", [])
    return Claim(
        **fields,
        interval=None if interval is None else (interval[0], interval[1]),
        settling=tuple(Settling(**side) for side in settling),
        late=tuple(late),
    )


class Results:
    """Results of a run: tables, claims, figures, the report. A notebook shows the report."""

    def __init__(self, native: _leeward.Results) -> None:
        self.native = native

    def table(self, name: str = "points") -> _leeward.Table:
        """A table in memory, by its name; libraries that read Arrow use it without a copy.

        Names and left-out columns are those of `frame`. Raises `ResultsError` for another name.
        """
        return self.native.table(text("table", name, "the name of a table, such as points", ResultsError)).dense()

    def frame(self, kind: str = "polars", table: str = "points") -> Any:
        """A table as a frame of `polars`, `pandas` or `arrow`.

        Tables: `points`, `windows`, `shifts`, `locks`, `replicas`, `services`, `kinds`. The frame
        omits columns in which no row has a value. `docs/results/fields.md` has the columns and their
        units.

        Raises `ResultsError` for another table or kind, `MissingExtra` for a missing library.
        """
        return frame(self.table(table), kind)

    def series(self, field: str, kind: str = "polars") -> Any:
        """Time series of a field of the windows, such as `delay_us`, as a frame.

        Columns: `label`, `seed`, `start_s` (start of the window, in s) and the field; and those in
        which the runs differ, such as `demand_rps`. Raises `ResultsError` for an unknown field, or
        if the scenario has no `run.window`.
        """
        from .plot import axes_of, refuse_empty

        field = text("field", field, "the name of a column, such as delay_us", ResultsError)
        table = self.native.table("windows")
        table.column(field)  # raises if there is none
        refuse_empty(table)
        keep = {"label", "seed", "start_s", field}
        keep.update(name for name in axes_of(table) if len(set(table.column(name))) > 1)
        for name in table.names:
            if name not in keep:
                table = table.without(name)
        return frame(table, kind)

    @property
    def claims(self) -> list[Claim]:
        """Claims with their verdicts.

        A verdict is `reproduced`, `not_reproduced`, `undecided` or `not_applicable`.
        """
        return [_claim(claim) for claim in json.loads(self.native.claims_json())]

    @property
    def scenario(self) -> str:
        """Id of the scenario."""
        return self.native.scenario

    @property
    def title(self) -> str:
        """Title of the scenario."""
        return self.native.title

    @property
    def plant(self) -> str:
        """`sim` for simulations, `real` for measurements."""
        return self.native.plant

    def plot(self, y: str = "goodput", x: str | None = None, by: str = "label", **options: Any) -> Figure:
        """Draws lines: see `leeward.plot.plot`. Draws time series if `x` is `time`."""
        from . import plot as drawing

        return drawing.plot(self, y, x, by, **options)

    def report(self, path: str | os.PathLike[str]) -> None:
        """Writes the report to the file `path`, as one self-contained HTML page."""
        write_page(path, self.native.report())

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Writes a results folder, as `leeward run --out` does; `leeward.read` reads it.

        Raises `ResultsError` if it can't be written.
        """
        self.native.write(os.fspath(path_of("folder", folder, ResultsError)))

    def to_json(self) -> bytes:
        """The bytes of `leeward run --json`. The same scenario and seed give the same bytes."""
        return self.native.to_json()

    def __reduce__(self) -> tuple[Any, ...]:
        return _again, (self.to_json(),)

    def __repr__(self) -> str:
        return f"<results of {self.scenario}: {len(self.native.table('points'))} runs>"

    def _repr_html_(self) -> str:
        return framed(self.native.report(), self.scenario)


def write_page(path: str | os.PathLike[str], page: str) -> None:
    """Writes an HTML page; raises `ResultsError` if it can't."""
    file = path_of("path", path, ResultsError)
    try:
        file.write_text(page, encoding="utf-8")
    except OSError as error:
        raise ResultsError(f"{file}: {error.strerror}") from error


def _again(json_bytes: bytes) -> Results:
    return Results(_leeward.Results.from_json(json_bytes))
