"""Scenarios as immutable objects: `set`, `quick` and `controllers` return a changed copy."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from html import escape
from typing import Any

from . import _leeward
from .controller import Controller
from .errors import ScenarioError
from .progress import bar
from .results import Results
from .values import SEED_MAX, path_of, refused, text, whole, written

# Maximum of runs per point, as in a scenario's file; and of threads.
SEEDS_MAX = 1_000
THREADS_MAX = 1_024


@dataclass(frozen=True)
class Scenario:
    """An experiment: machine, workload, controllers, plots and claims.

    `leeward.scenario` makes one. Each method returns another scenario, which it has checked: it
    raises `ScenarioError` for a value that is not accepted.
    """

    name: str
    text: str = field(repr=False)
    folder: str = ""
    overrides: tuple[str, ...] = ()
    is_quick: bool = False
    python: tuple[tuple[str, type, tuple[tuple[str, str], ...]], ...] = ()
    only: tuple[str, ...] | None = None

    def native(self) -> _leeward.Scenario:
        """Checks the scenario; returns its native form, or raises `ScenarioError`."""
        python = [(label, cls, list(params)) for label, cls, params in self.python]
        return _leeward.Scenario(self.name, self.text, self.folder, list(self.overrides), self.is_quick, python)

    def _checked(self) -> Scenario:
        native = self.native()
        for label in self.only or ():
            if label not in native.labels and label not in native.bases:
                raise ScenarioError(f"controller: `{label}`, which was selected, has another label now; accepted: {', '.join(native.labels)}", "", "controller")
        return self

    @property
    def id(self) -> str:
        """Id of the scenario."""
        return self.native().id

    @property
    def title(self) -> str:
        """Title of the scenario, one line."""
        return self.native().title

    @property
    def labels(self) -> list[str]:
        """Labels of the controller variants that run."""
        native = self.native()
        chosen = [label for label, base in zip(native.labels, native.bases) if self.only is None or label in self.only or base in self.only]
        return chosen if self.only is None else sorted(chosen, key=lambda label: self._place(label, native))

    def _place(self, label: str, native: _leeward.Scenario) -> int:
        """Place of a chosen label in the order of the choice."""
        assert self.only is not None
        base = native.bases[native.labels.index(label)]
        return self.only.index(label if label in self.only else base)

    def quick(self) -> Scenario:
        """The scenario with fewer points, measured less precisely, as with `--quick`."""
        return replace(self, is_quick=True)._checked()

    def set(self, path: str | Mapping[str, Any], value: Any = None) -> Scenario:
        """Sets a value by its key in the scenario's file, as `--set` does, or several by a dict.

        Example: `set("workload.clients", 200)`. Durations need a unit: `"30us"`. A number for a
        demand is a multiple of the capacity.
        """
        if isinstance(path, Mapping) and value is not None:
            raise refused("set", value, "a dict alone, or a key and its value")
        changes = dict(path) if isinstance(path, Mapping) else {path: value}
        for key in changes:
            text("set", key, 'a key of the scenario such as "workload.clients", or a dict of such keys')
        new = tuple(f"{key}={written(key, value)}" for key, value in changes.items())
        return replace(self, overrides=self.overrides + new)._checked()

    def controllers(self, *wanted: str | type[Controller], **named: type[Controller]) -> Scenario:
        """Selects the controllers that run.

        Each of `wanted` is a label of the scenario, the name of another built-in controller, or a
        class made from `leeward.Controller`. The label of a class is its name, or the keyword in
        `named`.
        """
        python = list(self.python)
        text = self.text
        known = set(self.native().labels)
        labels: list[str] = []
        classes: list[tuple[str, type]] = []
        builtin = {name for name, _, _, _ in _leeward.controllers()}
        accepted = f"{', '.join(sorted(known | builtin))}, or a class of yours that is a leeward.Controller"
        if not wanted and not named:
            raise ScenarioError(f"controller: none is named; accepted: {accepted}", "", "controller")
        for one in wanted:
            if isinstance(one, str):
                if one not in known and one in builtin:
                    text += f'\n[[controller]]\nname = "{one}"\n'
                    known.add(one)
                elif one not in known:
                    raise ScenarioError(f"controller: there is no `{one}`; accepted: {accepted}", "", "controller")
                labels.append(one)
            elif isinstance(one, type):
                classes.append((one.__name__, one))
                labels.append(one.__name__)
            else:
                raise refused("controller", one, accepted)
        classes.extend(named.items())
        labels.extend(named)
        for label, cls in classes:
            if not (isinstance(cls, type) and issubclass(cls, Controller)):
                raise refused(f"controller.{label}", cls, "a class that is a leeward.Controller")
            if not 0 < len(label) <= 60 or label.strip() != label or not all(char.isalnum() or char in " ._-+:/%()" for char in label):
                raise refused("a controller's label", label, "1 to 60 letters, digits, spaces and any of . _ - + : / % ( )")
            if labels.count(label) > 1:
                raise ScenarioError(f"controller: `{label}` is there twice; accepted: a name for each, as in controllers(first=A, second=B)", "", "controller")
            python = [entry for entry in python if entry[0] != label] + [(label, cls, ())]
        return replace(self, text=text, python=tuple(python), only=tuple(labels))._checked()

    def run(
        self,
        seeds: int | None = None,
        *,
        seed: int = 1,
        threads: int | None = None,
        progress: bool | None = None,
    ) -> Results:
        """Runs all points of the scenario, and returns the results.

        - `seeds`: runs per point, 1 to 1,000; by default as in the scenario.
        - `seed`: seed of the first run, 0 to 2**53 - 1,001; the others follow it.
        - `threads`: 1 to 1,024; by default one per CPU, or 1 if a Python controller decides on
          every request.
        - `progress`: True shows a bar, False none; by default if the output is a terminal or a
          notebook.

        The same scenario and seed give the same results on any number of threads. Ctrl-C ends the
        run. Raises `ScenarioError` for a wrong argument, `RunError` if a run fails, and exceptions
        of Python controllers.
        """
        if seeds is not None:
            seeds = whole("run.seeds", seeds, 1, SEEDS_MAX)
        seed = whole("seed", seed, 0, SEED_MAX - SEEDS_MAX)
        if threads is not None:
            threads = whole("threads", threads, 1, THREADS_MAX)
        native = self.native()
        labels = list(self.only) if self.only is not None else None
        with bar(native.id, "run", progress) as tell:
            return Results(native.run(seed, seeds, labels, threads, tell))

    def _repr_html_(self) -> str:
        native = self.native()
        rows = "".join(f"<tr><td>{escape(label)}</td><td>{escape(name)}</td></tr>" for label, name in native.variants)
        head = "<tr><th>variant</th><th>controller</th></tr>"
        return f"<p><b>{escape(native.title)}</b> ({escape(native.id)}; {escape(native.source)})</p><table>{head}{rows}</table>"


def scenario(which: str | os.PathLike[str]) -> Scenario:
    """Returns a scenario by its id (`leeward.scenarios()` lists all), the name of a random one such
    as `random-91`, or the path of a TOML file.

    Raises `ScenarioError` for an unknown id, a missing file, or a file that is not accepted. The
    exception has the line and the key.
    """
    path = path_of("scenario", which, ScenarioError)
    if isinstance(which, str) and (which in _leeward.scenarios() or (path.suffix != ".toml" and not path.is_file())):
        return Scenario(f"{which}.toml", _leeward.scenarios(which)[0])
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ScenarioError(f"{path}: {error}", str(path), "") from error
    return Scenario(str(path), text, str(path.parent))._checked()
