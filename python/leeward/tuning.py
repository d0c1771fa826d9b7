"""Search for a controller's parameters by Optuna, judged with seeds that it does not use."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .errors import SweepError
from .extras import need
from .plot import measured
from .scenario import SEEDS_MAX, Scenario
from .values import refused, text, whole, written

# Nanoseconds per unit. The search of a range of durations is logarithmic, in nanoseconds.
# Step of a range of durations, in nanoseconds.
STEP = 100
UNITS = {"ns": 1, "us": 1_000, "µs": 1_000, "ms": 1_000_000, "s": 1_000_000_000}


@dataclass(frozen=True)
class Tuned:
    """Result of a search."""

    params: dict[str, Any]
    """Best parameters: keys of the scenario and their values."""
    value: float
    """Their mean objective over the seeds of the search, in the unit of the objective."""
    held_out: float
    """Their mean objective over seeds that the search did not use: the value to expect."""
    default: float
    """The mean objective over the same seeds with the parameters of the original scenario."""
    study: Any
    """The study of Optuna, with all trials."""
    scenario: Scenario
    """The scenario with the best parameters."""


def tune(
    scenario: Scenario,
    space: Mapping[str, Sequence[Any]],
    *,
    controller: str | None = None,
    objective: str = "goodput_rps",
    maximize: bool | None = None,
    trials: int = 30,
    seeds: int = 2,
    held_out: int = 3,
    seed: int = 1,
    study: Any = None,
) -> Tuned:
    """Searches for the parameters of a controller with the best objective.

    - `space`: names, and the values to try. A tuple of two is a range of numbers or of durations,
      such as `("20us", "160us")`; a list is a choice. A name without a dot is a parameter of the
      controller, a name with a dot is a key of the scenario.
    - `controller`: the label or name of one controller; needed if the scenario has several.
    - `objective`: a column of the points. The search maximizes its mean over all points and seeds,
      with `maximize=False` it minimizes; by default it maximizes rates, which end in `_rps`.
    - `trials`: number of parameter sets to try.
    - `seeds`, `seed`: the number of seeds in the search, 1 to 1,000, and the first of them.
    - `held_out`: the number of seeds that follow, 1 to 1,000. Only the final comparison uses these.
    - `study`: a study of Optuna; by default a new one with a sampler that draws from `seed`.
      `maximize` does not change a given study.

    Raises `SweepError` for a wrong argument, `MissingExtra` without Optuna.
    """
    optuna = need("optuna")
    if not isinstance(scenario, Scenario):
        raise refused("scenario", scenario, 'a scenario, as leeward.scenario("bw-overall") gives', SweepError)
    if not isinstance(space, Mapping):
        raise refused("space", space, 'a dict of names and ranges, such as {"target": ("20us", "160us")}', SweepError)
    for name, range_ in space.items():
        _check(text("space", name, "names of parameters or keys", SweepError), range_)
    trials = whole("trials", trials, 1, 2**31 - 1, SweepError)
    seeds = whole("seeds", seeds, 1, SEEDS_MAX, SweepError)
    held_out = whole("held_out", held_out, 1, SEEDS_MAX, SweepError)
    seed = whole("seed", seed, 0, 2**32 - 1, SweepError)
    objective = text("objective", objective, "a column of the points, such as goodput_rps", SweepError)
    if controller is not None:
        scenario = scenario.controllers(controller)
    labels = scenario.labels
    if len(labels) != 1:
        raise SweepError(f"controller: {len(labels)} variants; accepted: one of {', '.join(labels)}")
    if not space:
        raise refused("space", space, "at least one name and its range", SweepError)
    keys = {name: name if "." in name else f"controller.{labels[0]}.params.{name}" for name in space}
    # A wrong name is found before the search, which would log it trial by trial.
    scenario.set({keys[name]: range_[0] for name, range_ in space.items()})
    if study is None:
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        direction = "maximize" if (objective.endswith("_rps") if maximize is None else maximize) else "minimize"
        study = optuna.create_study(direction=direction, sampler=optuna.samplers.TPESampler(seed=seed))

    worst = -math.inf if study.direction == optuna.study.StudyDirection.MAXIMIZE else math.inf

    def worth(candidate: Scenario, first: int, count: int) -> float:
        table = candidate.run(count, seed=first, progress=False).table()
        values = measured(table, objective)
        # Without a response there is no latency: the worst that can be.
        return worst if None in values else float(sum(values) / len(values))

    def trial(one: Any) -> float:
        chosen = {keys[name]: suggest(one, name, range_) for name, range_ in space.items()}
        return worth(scenario.set(chosen), seed, seeds)

    study.optimize(trial, n_trials=trials)
    params = {keys[name]: text_of(space[name], value) for name, value in study.best_params.items()}
    best = scenario.set(params)
    other = seed + seeds
    return Tuned(params, study.best_value, worth(best, other, held_out), worth(scenario, other, held_out), study, best)


def _check(name: str, range_: Any) -> None:
    """Raises `SweepError` for a range or a choice without values."""
    if not isinstance(range_, Sequence) or isinstance(range_, str | bytes) or not range_:
        raise refused(name, range_, "a tuple of two, which is a range, or a list of values", SweepError)
    if not (isinstance(range_, tuple) and len(range_) == 2):
        return
    low, high = range_
    accepted = "two numbers or two durations, the lower one first"
    if isinstance(low, str) and isinstance(high, str):
        low, high = nanos(name, low), nanos(name, high)
        accepted = "two durations from 100ns, the lower one first"
        if low < STEP:
            raise refused(name, range_, accepted, SweepError)
    kinds = (int, float)
    if not (isinstance(low, kinds) and isinstance(high, kinds)) or isinstance(low, bool) or isinstance(high, bool) or not -math.inf < low <= high < math.inf:
        raise refused(name, range_, accepted, SweepError)


def suggest(trial: Any, name: str, range_: Sequence[Any]) -> Any:
    """Draws a value of the range; a duration is a text in nanoseconds."""
    if isinstance(range_, tuple) and len(range_) == 2:
        low, high = range_
        if isinstance(low, str):
            return text_of(range_, trial.suggest_float(name, nanos(name, low), nanos(name, high), log=True))
        if isinstance(low, int) and isinstance(high, int):
            return trial.suggest_int(name, low, high)
        return trial.suggest_float(name, low, high)
    return trial.suggest_categorical(name, list(range_))


def text_of(range_: Sequence[Any], value: Any) -> Any:
    """A duration as text, in steps of 100 ns; a value of another range unchanged."""
    if isinstance(range_, tuple) and isinstance(range_[0], str):
        return f"{max(1, round(value / STEP)) * STEP}ns"
    return value


def nanos(name: str, text: str) -> float:
    """Parses a duration, to nanoseconds; raises `SweepError` for another text."""
    number = text.rstrip("nuµms")
    try:
        return float(number) * UNITS[text[len(number) :]]
    except (KeyError, ValueError):
        raise SweepError(f"{name}: `{written(name, text)}` is not a duration; accepted: such as 80us") from None
