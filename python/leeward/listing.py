"""Lists of scenarios, controllers and fields of tables."""

from __future__ import annotations

from . import _leeward


def scenarios() -> list[str]:
    """Ids of the built-in scenarios."""
    return _leeward.scenarios()


def controllers() -> dict[str, dict[str, str]]:
    """Controllers by name, each with its parameters: name to meaning and default."""
    return {
        name: {param: f"{doc} (default: {default})" for param, default, doc, _ in params}
        for name, _, _, params in _leeward.controllers()
    }


def fields() -> dict[str, str]:
    """Fields of all tables: name to heading and unit, such as `99th percentile latency, µs`."""
    return {name: f"{heading}, {unit}" if unit else heading for name, heading, unit in _leeward.fields()}
