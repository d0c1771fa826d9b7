"""Checks of arguments, and conversion of Python values to the text of overrides."""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

from .errors import LeewardError, ScenarioError

# Beyond, JSON readers round, and the program repeats no such seed.
SEED_MAX = 2**53 - 1
# Maximum of entries of a list in a scenario.
ENTRIES_MAX = 1_000


def whole(name: str, value: Any, low: int, high: int = SEED_MAX, wrong: type[LeewardError] = ScenarioError) -> int:
    """Checks a whole number from `low` to `high`; raises `wrong` for another value."""
    number = _plain(value)
    if isinstance(number, bool) or not isinstance(number, int) or not low <= number <= high:
        until = "" if high == SEED_MAX else f" to {high}"
        raise refused(name, number, f"a whole number from {low}{until}", wrong)
    return number


def refused(name: str, value: Any, accepted: str, wrong: type[LeewardError] = ScenarioError) -> LeewardError:
    """An exception of the class `wrong`: the argument's name, its value, and accepted values."""
    message = f"{name}: {shown(value)} is not accepted; accepted: {accepted}"
    return wrong(message, "", name) if issubclass(wrong, ScenarioError) else wrong(message)


def shown(value: Any) -> str:
    """The value for a message, at most 80 characters."""
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


def text(name: str, value: Any, accepted: str, wrong: type[LeewardError] = ScenarioError) -> str:
    """Checks a text; raises `wrong` with the accepted values otherwise."""
    if not isinstance(value, str):
        raise refused(name, value, accepted, wrong)
    return value


def span(name: str, value: Any, wrong: type[LeewardError] = ScenarioError) -> str:
    """Checks that a duration is a text, which has a unit; the native part parses it."""
    return text(name, value, 'a duration such as "80us" or "5s"', wrong)


def rate(name: str, value: Any, wrong: type[LeewardError] = ScenarioError) -> float:
    """Checks a finite number above zero."""
    number = _plain(value)
    if isinstance(number, bool) or not isinstance(number, int | float) or not (0 < number <= sys.float_info.max):
        raise refused(name, value, "a number above 0", wrong)
    return float(number)


def path_of(name: str, value: Any, wrong: type[LeewardError]) -> Path:
    """Converts a text or path to a `Path`; raises `wrong` for another value."""
    if not isinstance(value, str | os.PathLike) or "\0" in str(value):
        raise refused(name, value, "the path of a file or folder", wrong)
    return Path(value)


def _plain(value: Any) -> Any:
    """Converts numbers and arrays of numpy to those of Python; other values stay unchanged."""
    return value.tolist() if hasattr(value, "tolist") and hasattr(value, "item") else value


def is_demand(key: str) -> bool:
    """True for keys such as `demand`, `workload.demand` and `workload.shift.0.demand`."""
    return key.rpartition(".")[2] == "demand"


def written(key: str, value: Any) -> str:
    """The value as `--set` writes it; raises `ScenarioError` for an impossible value.

    A number for a demand is a multiple of the capacity: 0.8 becomes `0.8x`.
    """
    value = _plain(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and not math.isfinite(value):
        raise ScenarioError(f"{key}: {value} is not a number; accepted: a finite number", f"--set {key}={value}", key)
    if isinstance(value, int | float):
        # Scenarios accept no exponent in a multiple.
        return f"{Decimal(repr(value)):f}x" if is_demand(key) else repr(value)
    if isinstance(value, str):
        return value
    if isinstance(value, Sequence) and not isinstance(value, bytes | bytearray | memoryview):
        if len(value) > ENTRIES_MAX:
            raise ScenarioError(f"{key}: {len(value)} values; accepted: 1 to {ENTRIES_MAX}", "", key)
        inner = [written(key, one) for one in value]
        return "[" + ", ".join(json.dumps(one) if isinstance(raw, str) or is_demand(key) else one for raw, one in zip(value, inner)) + "]"
    raise ScenarioError(f"{key}: {shown(value)} is not a value; accepted: a number, a text, True, False, or a list of these", "", key)
