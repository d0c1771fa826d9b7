"""Values of Python as scenario files write them."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any

from .errors import LeewardError, ScenarioError

# Tables keep whole numbers of 64 bits with a sign, as TOML does.
SEED_MAX = 2**63 - 1
DEMANDS = ("demand", "workload.demand")


def whole(name: str, value: Any, low: int, high: int = SEED_MAX, wrong: type[LeewardError] = ScenarioError) -> int:
    """The value as a whole number from `low` to `high`; an exception of the class `wrong` names it otherwise."""
    number = value.item() if hasattr(value, "item") else value  # a number of numpy
    if isinstance(number, bool) or not isinstance(number, int) or not low <= number <= high:
        until = "" if high == SEED_MAX else f" to {high}"
        message = f"{name}: {number!r} is not accepted; accepted: a whole number from {low}{until}"
        raise wrong(message, "", name) if issubclass(wrong, ScenarioError) else wrong(message)
    return number


def written(key: str, value: Any) -> str:
    """The value as an override writes it. A number for a demand is a multiple of the capacity."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and not math.isfinite(value):
        raise ScenarioError(f"{key}: {value} is not a number; accepted: a finite number", f"--set {key}={value}", key)
    if isinstance(value, int | float):
        return f"{value!r}x" if key in DEMANDS else repr(value)
    if isinstance(value, str):
        return value
    if isinstance(value, Sequence):
        inner = [written(key, one) for one in value]
        return "[" + ", ".join(json.dumps(one) if isinstance(raw, str) or key in DEMANDS else one for raw, one in zip(value, inner)) + "]"
    if hasattr(value, "item"):  # a number of numpy
        return written(key, value.item())
    raise ScenarioError(f"{key}: {value!r} is not a value; accepted: a number, a text, True, False, or a list of these", "", key)
