"""Optional libraries: imported at their first use; an error names the extra of a missing one."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from .errors import MissingExtra

EXTRAS = {
    "cloudpickle": "ray",
    "matplotlib": "plot",
    "matplotlib.figure": "plot",
    "matplotlib.ticker": "plot",
    "optuna": "tune",
    "pandas": "frames",
    "polars": "frames",
    "pyarrow": "frames",
    "pyarrow.dataset": "frames",
    "ray": "ray",
    "ray.util.scheduling_strategies": "ray",
}


def need(library: str) -> Any:
    """Imports the library; raises `MissingExtra` with the command that installs a missing one."""
    try:
        return import_module(library)
    except ImportError as error:
        extra = EXTRAS[library]
        raise MissingExtra(f"{library} is missing: pip install 'leeward[{extra}]'") from error
