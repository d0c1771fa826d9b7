"""Tables as frames of the library of your choice. Polars and Arrow take the table's memory as it is."""

from __future__ import annotations

from typing import Any

from ._leeward import Table
from .errors import ResultsError
from .extras import need

KINDS = ("polars", "pandas", "arrow")


def frame(table: Table, kind: str) -> Any:
    """The table as a `polars.DataFrame`, a `pandas.DataFrame` or a `pyarrow.Table`."""
    if kind == "polars":
        return need("polars").DataFrame(table)
    if kind == "arrow":
        return need("pyarrow").table(table)
    if kind == "pandas":
        need("pandas")
        return need("pyarrow").table(table).to_pandas()
    raise ResultsError(f"there are no frames of `{kind}`; accepted: {', '.join(KINDS)}")
