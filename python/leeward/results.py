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
class Claim:
    """A claim of a paper, and what was measured."""

    id: str
    text: str
    paper: str
    measured: str
    accepted: str
    verdict: str
    note: str = ""
    value: float | None = None


class Results:
    """What a run came to: tables, claims, plots, the report."""

    def __init__(self, native: _leeward.Results) -> None:
        self.native = native

    def table(self, name: str = "points") -> _leeward.Table:
        """A table as it is in memory; every library that reads Arrow takes it."""
        return self.native.table(text("table", name, "the name of a table, such as points", ResultsError)).dense()

    def frame(self, kind: str = "polars", table: str = "points") -> Any:
        """A table as a frame of `polars`, `pandas` or `arrow`: `points`, `windows`, `shifts`, `locks`, `replicas`, `services` or `kinds`.

        Columns in which no row has a value are left out. `docs/results.md` says what each column means.
        """
        return frame(self.table(table), kind)

    def series(self, field: str, kind: str = "polars") -> Any:
        """Time series of a field of the windows, such as `delay_us`: label, seed, start_s (s) and the field."""
        field = text("field", field, "the name of a column, such as delay_us", ResultsError)
        table = self.native.table("windows")
        keep = {"label", "seed", "start_s", field}
        for name in table.names:
            if name not in keep:
                table = table.without(name)
        table.column(field)  # raises if there is none
        return frame(table, kind)

    @property
    def claims(self) -> list[Claim]:
        """Claims of the paper with their verdicts: `reproduced`, `not_reproduced` or `not_applicable`."""
        return [Claim(**claim) for claim in json.loads(self.native.claims_json())]

    @property
    def scenario(self) -> str:
        """Id of the scenario."""
        return self.native.scenario

    @property
    def title(self) -> str:
        """Its title."""
        return self.native.title

    @property
    def plant(self) -> str:
        """`sim`, or `real` for measurements."""
        return self.native.plant

    def plot(self, y: str = "goodput", x: str | None = None, by: str = "label", **options: Any) -> Figure:
        """A figure: see `leeward.plot.plot`. Time series if `x` is `time`."""
        from . import plot as drawing

        return drawing.plot(self, y, x, by, **options)

    def report(self, path: str | os.PathLike[str]) -> None:
        """Writes the report, one HTML page that needs nothing else."""
        with path_of("path", path, ResultsError).open("w", encoding="utf-8") as file:
            file.write(self.native.report())

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Writes a results folder as `leeward run --out` does; `leeward.read` reads it."""
        self.native.write(os.fspath(path_of("folder", folder, ResultsError)))

    def to_json(self) -> bytes:
        """The results as `leeward run --json` prints them: the same bytes for the same scenario and seed."""
        return self.native.to_json()

    def __reduce__(self) -> tuple[Any, ...]:
        return _again, (self.to_json(),)

    def __repr__(self) -> str:
        return f"<results of {self.scenario}: {len(self.native.table('points'))} runs>"

    def _repr_html_(self) -> str:
        return framed(self.native.report(), self.scenario)


def _again(json_bytes: bytes) -> Results:
    return Results(_leeward.Results.from_json(json_bytes))
