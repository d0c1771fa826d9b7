"""Exceptions of this package. Each is a `LeewardError`."""

from __future__ import annotations


class LeewardError(Exception):
    """Base class of the exceptions of this package."""


class ScenarioError(LeewardError, ValueError):
    """A scenario that is not accepted: an unknown key, a wrong unit, an impossible value.

    `place` is the file and line, or the override. `key` is the path of the key. Either is empty if
    there is none.
    """

    def __init__(self, message: str, place: str = "", key: str = "") -> None:
        super().__init__(message, place, key)
        self.place = place
        self.key = key

    def __str__(self) -> str:
        return str(self.args[0])


class RunError(LeewardError, RuntimeError):
    """A run that failed after it had started."""


class Stopped(RunError):
    """A run that its caller stopped before all runs were done."""


class ControllerError(LeewardError, TypeError):
    """A class that is no controller, or a controller's method that returned a wrong value."""


class ControllerEndless(ControllerError):
    """A controller's method that has not returned for 10 seconds."""

    def __init__(self, message: str = "a controller's method has not returned for 10 seconds") -> None:
        super().__init__(message)


class SweepError(LeewardError, ValueError):
    """A sweep or search that is not accepted, such as one with an axis without values."""


class ResultsError(LeewardError, ValueError):
    """Results, recordings or tables that can't be read, written or merged, or an unknown field."""


class LoadError(LeewardError, RuntimeError):
    """Load that is not accepted, or that failed."""


class ClusterError(LeewardError, RuntimeError):
    """A cluster that can't be reached, or a batch whose workers died four times."""


class MissingExtra(LeewardError, ImportError):
    """A library that is not installed. The message names the extra that installs it."""
