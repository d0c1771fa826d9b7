"""Tables as data frames of Polars, pandas or Arrow. Polars and Arrow share the table's memory."""

from __future__ import annotations

from typing import Any

from ._leeward import Table
from .errors import ResultsError
from .extras import need

KINDS = ("polars", "pandas", "arrow")


def unpickled(pickled: bytes) -> Table:
    """The table that `pickle` has written."""
    return Table.from_bytes(pickled)


def frame(table: Table, kind: str) -> Any:
    """The table as a `polars.DataFrame`, a `pandas.DataFrame` or a `pyarrow.Table`, by `kind`.

    Raises `ResultsError` for another kind, `MissingExtra` if the library is not installed.
    """
    if kind == "polars":
        return need("polars").DataFrame(table)
    if kind == "arrow":
        return need("pyarrow").table(table)
    if kind == "pandas":
        need("pandas")
        return need("pyarrow").table(table).to_pandas()
    raise ResultsError(f"there are no frames of `{kind}`; accepted: {', '.join(KINDS)}")
