"""Controllers written in Python."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from ._leeward import Environment


class Controller:
    """Base class of a controller for the simulator.

    A subclass defines `tick`, `request` or both; or `pool` alone.

    - `tick(signals)` is the slow half. The simulator calls it once per `period`. It returns a dict
      of the settings that change, or None:
      - `admit`: the share of requests to admit, 0 to 1;
      - `delay`: the queueing delay from which requests are rejected, `"80us"` or a number of µs;
      - `limit`: requests in the server at once, from when a core has read them;
      - `priority`: the least important priority that is admitted, 1 to 128.
      At first every request is admitted. None for `delay` or `limit` removes it.
    - `request(arrival)` decides on each request that these settings admit: True admits it. Such a
      controller is about 20 times slower than one in Rust.
    - `pool(signals, pool)` is the law of Breakwater's credit pool, called once per round trip. It
      returns the total number of credits. Windows, lazy distribution and clients are Breakwater's.

    `period` is a duration from `"1us"`. `params` declares parameters with their defaults: numbers,
    True or False, or durations such as `"80us"`. They become attributes; a duration becomes a
    number of µs. The key `controller.LABEL.params.NAME` of a scenario sets a parameter.

    The simulator makes one object for every server of every run, and others to check the scenario: `begin`
    is no place for side effects. Draw random numbers from
    `arrival.random` alone: then a seed gives the same results again.

    An exception of a method ends the run, and its caller gets it. A returned value that is not
    accepted raises `ControllerError`, a method that runs for 10 s `ControllerEndless`.
    """

    params: ClassVar[dict[str, float | int | bool | str]] = {}
    period: str = "1ms"

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """A declared parameter."""

    def __init__(self, environment: Environment, **params: Any) -> None:
        self.environment = environment
        for name, value in params.items():
            setattr(self, name, value)
        self.begin()

    def begin(self) -> None:
        """Initializes the state of the object, after the parameters are set."""
