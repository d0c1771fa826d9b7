"""The search for parameters by Optuna, with seeds that the search never sees."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .errors import SweepError
from .extras import need
from .scenario import SEEDS_MAX, Scenario
from .values import refused, text, whole, written

# A range of durations, `("20us", "160us")`, is searched on a logarithmic scale in nanoseconds.
UNITS = {"ns": 1, "us": 1_000, "µs": 1_000, "ms": 1_000_000, "s": 1_000_000_000}


@dataclass(frozen=True)
class Tuned:
    """What a search found."""

    params: dict[str, Any]
    """Best parameters, as the scenario's keys."""
    value: float
    """Mean of the objective over the seeds of the search."""
    held_out: float
    """The same over the seeds that the search never saw: what to expect."""
    default: float
    """The same over these seeds with the scenario as it was."""
    study: Any
    """Optuna's study."""
    scenario: Scenario
    """The scenario with the best parameters."""


def tune(
    scenario: Scenario,
    space: Mapping[str, Sequence[Any]],
    *,
    controller: str | None = None,
    objective: str = "goodput_rps",
    maximize: bool = True,
    trials: int = 30,
    seeds: int = 2,
    held_out: int = 3,
    seed: int = 1,
    study: Any = None,
) -> Tuned:
    """Searches the parameters of a controller.

    `space`: names to what may be chosen: a tuple of two is a range of numbers or durations (`("20us", "160us")`), a list is a choice. A
    name without a dot is a parameter of `controller`; a dotted one a key of the scenario. `objective`: a column of the points, of which
    the mean over all points and seeds is maximized. The search meets the seeds from `seed` on; the verdict comes from `held_out` others.
    `study`: one of Optuna's, by default a new one whose sampler draws from `seed`.
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
    keys = {name: name if "." in name else f"controller.{labels[0]}.params.{name}" for name in space}
    if study is None:
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        direction = "maximize" if maximize else "minimize"
        study = optuna.create_study(direction=direction, sampler=optuna.samplers.TPESampler(seed=seed))

    def worth(candidate: Scenario, first: int, count: int) -> float:
        values = candidate.run(count, seed=first, progress=False).table().column(objective)
        return float(sum(values) / len(values))

    def trial(one: Any) -> float:
        chosen = {keys[name]: suggest(one, name, range_) for name, range_ in space.items()}
        return worth(scenario.set(chosen), seed, seeds)

    study.optimize(trial, n_trials=trials)
    params = {keys[name]: text_of(space[name], value) for name, value in study.best_params.items()}
    best = scenario.set(params)
    other = seed + seeds
    return Tuned(params, study.best_value, worth(best, other, held_out), worth(scenario, other, held_out), study, best)


def _check(name: str, range_: Any) -> None:
    """Refuses a range or a choice that nothing can be drawn from."""
    if not isinstance(range_, Sequence) or isinstance(range_, str | bytes) or not range_:
        raise refused(name, range_, "a tuple of two, which is a range, or a list of values", SweepError)
    if not (isinstance(range_, tuple) and len(range_) == 2):
        return
    low, high = range_
    if isinstance(low, str) and isinstance(high, str):
        low, high = nanos(name, low), nanos(name, high)
    kinds = (int, float)
    if not (isinstance(low, kinds) and isinstance(high, kinds)) or isinstance(low, bool) or isinstance(high, bool) or not low <= high:
        raise refused(name, range_, "two numbers or two durations, the lower one first", SweepError)


def suggest(trial: Any, name: str, range_: Sequence[Any]) -> Any:
    """A value of the range, as the scenario writes it."""
    if isinstance(range_, tuple) and len(range_) == 2:
        low, high = range_
        if isinstance(low, str):
            return text_of(range_, trial.suggest_float(name, nanos(name, low), nanos(name, high), log=True))
        if isinstance(low, int) and isinstance(high, int):
            return trial.suggest_int(name, low, high)
        return trial.suggest_float(name, low, high)
    return trial.suggest_categorical(name, list(range_))


def text_of(range_: Sequence[Any], value: Any) -> Any:
    """A duration of the search, in whole tenths of microseconds; others as they are."""
    if isinstance(range_, tuple) and isinstance(range_[0], str):
        return f"{max(1, round(value / 100)) * 100}ns"
    return value


def nanos(name: str, text: str) -> float:
    """A duration in nanoseconds."""
    number = text.rstrip("nuµms")
    try:
        return float(number) * UNITS[text[len(number) :]]
    except (KeyError, ValueError):
        raise SweepError(f"{name}: `{written(name, text)}` is not a duration; accepted: such as 80us") from None
