"""Scenarios as objects. An object never changes: `set`, `quick` and `controllers` return another."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from . import _leeward
from .controller import Controller
from .errors import ScenarioError
from .progress import bar
from .results import Results
from .values import SEED_MAX, path_of, refused, text, whole, written

# Most runs per point, as in a scenario's file, and threads that nobody needs more of.
SEEDS_MAX = 1_000
THREADS_MAX = 1_024


@dataclass(frozen=True)
class Scenario:
    """A scenario: what is run, what is drawn, what is claimed."""

    name: str
    text: str
    folder: str = ""
    overrides: tuple[str, ...] = ()
    is_quick: bool = False
    python: tuple[tuple[str, type, tuple[tuple[str, str], ...]], ...] = ()
    only: tuple[str, ...] | None = None

    def native(self) -> _leeward.Scenario:
        """The checked scenario."""
        python = [(label, cls, list(params)) for label, cls, params in self.python]
        return _leeward.Scenario(self.name, self.text, self.folder, list(self.overrides), self.is_quick, python)

    def _checked(self) -> Scenario:
        self.native()
        return self

    @property
    def id(self) -> str:
        """Its id."""
        return self.native().id

    @property
    def title(self) -> str:
        """One line for people."""
        return self.native().title

    @property
    def labels(self) -> list[str]:
        """Labels of the variants that run."""
        native = self.native()
        return [label for label in native.labels if self.only is None or label in self.only]

    def quick(self) -> Scenario:
        """Fewer and shorter points, as the scenario's section `quick` says."""
        return replace(self, is_quick=True)._checked()

    def set(self, path: str | Mapping[str, Any], value: Any = None) -> Scenario:
        """Changes a value by its key in the file, as `--set` does: `set("workload.clients", 200)`, or a dict of several.

        Raises `ScenarioError` for a key or a value that is not accepted.
        """
        changes = dict(path) if isinstance(path, Mapping) else {path: value}
        for key in changes:
            text("set", key, 'a key of the scenario such as "workload.clients", or a dict of such keys')
        new = tuple(f"{key}={written(key, value)}" for key, value in changes.items())
        return replace(self, overrides=self.overrides + new)._checked()

    def controllers(self, *wanted: str | type[Controller], **named: type[Controller]) -> Scenario:
        """Which controllers run: labels of the scenario, names of controllers that it does not have, and classes of yours, whose label
        is the class's name or the keyword."""
        python = list(self.python)
        text = self.text
        known = set(self.native().labels)
        labels: list[str] = []
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
                named = {one.__name__: one, **named}
            else:
                raise refused("controller", one, accepted)
        for label, cls in named.items():
            if not (isinstance(cls, type) and issubclass(cls, Controller)):
                raise refused(f"controller.{label}", cls, "a class that is a leeward.Controller")
            python = [entry for entry in python if entry[0] != label] + [(label, cls, ())]
            labels.append(label)
        return replace(self, text=text, python=tuple(python), only=tuple(labels))._checked()

    def run(
        self,
        seeds: int | None = None,
        *,
        seed: int = 1,
        threads: int | None = None,
        progress: bool | None = None,
    ) -> Results:
        """Runs all of it.

        `seeds`: runs per point; by default as many as the scenario says. `seed`: that of the first. `threads`: by default one per CPU;
        one if a controller in Python decides on every request. `progress`: whether to show a bar, by default if somebody looks.
        The same scenario and seed give the same results on any number of threads. Ctrl-C ends it.
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
        rows = "".join(f"<tr><td>{label}</td><td>{name}</td></tr>" for label, name in native.variants)
        head = "<tr><th>variant</th><th>controller</th></tr>"
        return f"<p><b>{native.title}</b> ({native.id}; {native.source})</p><table>{head}{rows}</table>"


def scenario(which: str | os.PathLike[str]) -> Scenario:
    """A scenario by its id (`leeward.scenarios()` names them) or by the path of a file.

    Raises `ScenarioError` for one that there is not, or a file that is not accepted, with the line and the key.
    """
    path = path_of("scenario", which, ScenarioError)
    if isinstance(which, str) and which in _leeward.scenarios():
        return Scenario(f"{which}.toml", _leeward.scenarios(which)[0])
    if isinstance(which, str) and path.suffix != ".toml" and not path.is_file():
        _leeward.scenarios(which)  # raises, and names all that there are
    try:
        text = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise ScenarioError(f"{path}: {error}", str(path), "") from error
    return Scenario(str(path), text, str(path.parent))._checked()
