"""What there is to choose from."""

from __future__ import annotations

from . import _leeward


def scenarios() -> list[str]:
    """Ids of the scenarios that come with this package."""
    return _leeward.scenarios()


def controllers() -> dict[str, dict[str, str]]:
    """Controllers with their parameters: name to parameter to what it means and its default."""
    return {
        name: {param: f"{doc} (default: {default})" for param, default, doc, _ in params}
        for name, _, _, params in _leeward.controllers()
    }


def fields() -> dict[str, str]:
    """Fields of all tables: name to heading and unit."""
    return {name: f"{heading}, {unit}" if unit else heading for name, heading, unit in _leeward.fields()}
