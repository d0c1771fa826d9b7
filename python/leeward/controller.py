"""Controllers in Python."""

from __future__ import annotations

from typing import Any, ClassVar

from ._leeward import Environment


class Controller:
    """A controller for the simulator. Subclass it and define what it decides:

    - `tick(signals)`, the slow half, once per `period`. It returns what changes: `admit`, the share of requests that are admitted;
      `delay`, a queueing delay from which requests are rejected (`"80us"`, or a number of µs); `limit`, requests that may be in the
      server at once; `priority`, the least important one that is admitted, 1 to 128. None changes nothing.
    - `request(arrival)`, for every request that these settings let pass: True admits it. Some 20 times slower than Rust.
    - `pool(signals, pool)`, alone: the law of Breakwater's credit pool. It returns the number of credits that there shall be; windows,
      lazy distribution and the clients are Breakwater's. It is called once per round trip.

    `params` declares parameters and their defaults: numbers, True or False, durations such as `"80us"`. They become attributes; a
    duration is a number of µs. A scenario sets them under the key `controller.LABEL.params.NAME`.

    An object is made for every server of every run. Draw random numbers from `arrival.random` only, or a seed does not give the same
    results twice.
    """

    params: ClassVar[dict[str, float | int | bool | str]] = {}
    period: str = "1ms"

    def __init__(self, environment: Environment, **params: Any) -> None:
        self.environment = environment
        for name, value in params.items():
            setattr(self, name, value)
        self.begin()

    def begin(self) -> None:
        """Prepares the object: state belongs here."""
