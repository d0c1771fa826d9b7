"""Exceptions of this package. All are a `LeewardError`."""

from __future__ import annotations


class LeewardError(Exception):
    """Anything that this package refuses or fails at."""


class ScenarioError(LeewardError, ValueError):
    """A scenario that can't be run: an unknown key, a wrong unit, an impossible value.

    `place` is the file and line, or the override that was given; `key` the key's path. Both are empty where there is none.
    """

    def __init__(self, message: str, place: str = "", key: str = "") -> None:
        super().__init__(message, place, key)
        self.place = place
        self.key = key

    def __str__(self) -> str:
        return str(self.args[0])


class RunError(LeewardError, RuntimeError):
    """A run that failed on the way."""


class Stopped(RunError):
    """The caller wished to stop before all runs were done."""


class ControllerError(LeewardError, TypeError):
    """A controller in Python that returned nonsense, or a class that is none."""


class ControllerEndless(ControllerError):
    """A controller's method that does not return."""

    def __init__(self, message: str = "a controller's method has not returned for 10 seconds") -> None:
        super().__init__(message)


class SweepError(LeewardError, ValueError):
    """A sweep that can't be: no values, a data set of another sweep."""


class ResultsError(LeewardError, ValueError):
    """Results, recordings or tables that can't be read, written or put together."""


class LoadError(LeewardError, RuntimeError):
    """Load that could not be generated."""


class ClusterError(LeewardError, RuntimeError):
    """A cluster that is not there, or workers that fail again and again."""


class MissingExtra(LeewardError, ImportError):
    """A library that this needs and that is not installed; the message names the extra that installs it."""
