"""The data set of a sweep: a folder with a plan, and a Parquet file for each part.

Libraries that know Hive's partitions read it. A file is written under another name and then
renamed, so each file is whole.
"""

from __future__ import annotations

import json
import os
import warnings
from pathlib import Path
from typing import Any

from . import _leeward
from .errors import SweepError

PLAN = "_sweep.json"


def _plan_at(path: Path) -> dict[str, Any]:
    """Reads the plan of a data set; raises `SweepError` if the file has none."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise SweepError(f"{path}: no plan of a sweep: {error}") from error
    if not isinstance(found, dict) or not isinstance(found.get("parts"), list) or not all(isinstance(part, str) for part in found["parts"]):
        raise SweepError(f"{path}: no plan of a sweep")
    return found


class Dataset:
    """A data set in a folder. `parts` names all files of the plan, in the order of the grid."""

    def __init__(self, folder: Path, parts: list[str]) -> None:
        self.folder = folder
        self.parts = parts

    @classmethod
    def create(cls, folder: Path, plan: dict[str, Any], parts: list[str]) -> Dataset:
        """Makes a data set in `folder`, or continues the one there if its plan is the same.

        Raises `SweepError` if the folder has another sweep's data set, or other files.
        """
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise SweepError(f"out: {folder}: {error.strerror}; accepted: a folder") from error
        path = folder / PLAN
        whole = plan | {"parts": parts}
        if path.is_file():
            found = _plan_at(path)
            different = [key for key in whole if found.get(key) != whole[key]]
            if different:
                raise SweepError(f"{folder}: the data set of another sweep: {', '.join(different)} differ; accepted: an empty folder, or the same sweep")
        elif any(folder.iterdir()):
            raise SweepError(f"{folder}: not empty, and no data set of a sweep; accepted: an empty folder")
        else:
            partial = folder / f"{PLAN}.partial"
            partial.write_text(json.dumps(whole, indent=1) + "\n", encoding="utf-8")
            partial.replace(path)
        for left in folder.glob("*/*.partial-*"):
            left.unlink(missing_ok=True)  # left by a sweep that was killed
        return cls(folder, parts)

    @classmethod
    def open(cls, folder: Path) -> Dataset:
        """Opens a data set; raises `SweepError` if the folder has none."""
        return cls(folder, _plan_at(folder / PLAN)["parts"])

    def has(self, part: str) -> bool:
        """True if the file of this part is written."""
        return (self.folder / part).is_file()

    @property
    def complete(self) -> bool:
        """True if the files of all parts are written."""
        return all(self.has(part) for part in self.parts)

    @property
    def progress(self) -> str:
        """How many parts are written, such as `12 of 18 parts`."""
        return f"{len(self.files)} of {len(self.parts)} parts"

    @property
    def files(self) -> list[str]:
        """Paths of the files that are written, in the order of the grid."""
        return [os.fspath(self.folder / part) for part in self.parts if self.has(part)]

    def write(self, part: str, table: _leeward.Table) -> None:
        """Writes the rows of a part to its file."""
        path = self.folder / part
        path.parent.mkdir(parents=True, exist_ok=True)
        table.write_parquet(str(path))

    def table(self) -> _leeward.Table:
        """Reads all rows into memory, in the order of the grid. Warns of an unfinished sweep."""
        if not self.complete:
            warnings.warn(f"{self.folder}: an unfinished sweep: {self.progress}; the same call of sweep() continues it", stacklevel=4)
        return _leeward.Table.read_parquet(self.files).dense()
