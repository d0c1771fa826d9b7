"""The data set of a sweep: a folder of Parquet files, one per part, and the plan that they belong to.

Every library that knows Hive's partitions reads it. A file that is there is whole: it is written under another name first.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from . import _leeward
from .errors import SweepError

PLAN = "_sweep.json"


def _plan_at(path: Path) -> dict[str, Any]:
    """The plan in a file."""
    try:
        found = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise SweepError(f"{path}: no plan of a sweep: {error}") from error
    if not isinstance(found, dict) or not isinstance(found.get("parts"), list) or not all(isinstance(part, str) for part in found["parts"]):
        raise SweepError(f"{path}: no plan of a sweep")
    return found


class Dataset:
    """A data set in a folder."""

    def __init__(self, folder: Path, parts: list[str]) -> None:
        self.folder = folder
        self.parts = parts

    @classmethod
    def create(cls, folder: Path, plan: dict[str, Any], parts: list[str]) -> Dataset:
        """A new data set, or the one that is there if it is the same sweep's. Other files stop it."""
        folder.mkdir(parents=True, exist_ok=True)
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
            partial.write_text(json.dumps(whole, indent=1) + "\n")
            partial.replace(path)
        for left in folder.glob("*/*.partial-*"):
            left.unlink(missing_ok=True)  # of a sweep that was killed
        return cls(folder, parts)

    @classmethod
    def open(cls, folder: Path) -> Dataset:
        """The data set that is there."""
        return cls(folder, _plan_at(folder / PLAN)["parts"])

    def has(self, part: str) -> bool:
        """Whether a part is done."""
        return (self.folder / part).is_file()

    @property
    def complete(self) -> bool:
        """Whether all parts are done."""
        return all(self.has(part) for part in self.parts)

    @property
    def files(self) -> list[str]:
        """Files of the parts that are done, in the order of the grid."""
        return [os.fspath(self.folder / part) for part in self.parts if self.has(part)]

    def write(self, part: str, table: _leeward.Table) -> None:
        """Keeps a part."""
        path = self.folder / part
        path.parent.mkdir(parents=True, exist_ok=True)
        table.write_parquet(str(path))

    def table(self) -> _leeward.Table:
        """All rows in memory, in the order of the grid."""
        return _leeward.Table.read_parquet(self.files).dense()
