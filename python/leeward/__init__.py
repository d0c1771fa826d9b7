"""Leeward: overload control at microsecond scale, with simulations, sweeps, figures and load tests.

    import leeward as lw

    results = lw.scenario("bw-overall").quick().run(seeds=1)
    results.plot("goodput").savefig("goodput.png")

Units are in names: `_us` are microseconds, `_rps` requests per second, `_ratio` and `_rate` shares
or multiples of one. The guide is `docs/python.md`.
"""

from . import plot as plot
from ._leeward import Arrival, Environment, Pool, Signals, Table, __version__
from .cluster import Load, load
from .controller import Controller
from .errors import (
    ClusterError,
    ControllerEndless,
    ControllerError,
    LeewardError,
    LoadError,
    MissingExtra,
    ResultsError,
    RunError,
    ScenarioError,
    Stopped,
    SweepError,
)
from .listing import controllers, fields, scenarios
from .reading import Recorded, Timeline, Trace, read
from .results import Claim, Results
from .scenario import Scenario, scenario
from .sweeps import Sweep, sweep
from .tuning import Tuned, tune

__all__ = [
    "Arrival",
    "Claim",
    "ClusterError",
    "Controller",
    "ControllerEndless",
    "ControllerError",
    "Environment",
    "LeewardError",
    "Load",
    "LoadError",
    "MissingExtra",
    "Pool",
    "Recorded",
    "Results",
    "ResultsError",
    "RunError",
    "Scenario",
    "ScenarioError",
    "Signals",
    "Stopped",
    "Sweep",
    "SweepError",
    "Table",
    "Timeline",
    "Trace",
    "Tuned",
    "__version__",
    "controllers",
    "fields",
    "load",
    "plot",
    "read",
    "scenario",
    "scenarios",
    "sweep",
    "tune",
]
