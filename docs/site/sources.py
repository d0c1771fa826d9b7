"""Reads committed results: verdicts, the league, tables of documents. Contains no drawing.

A table is looked up by its head, so that it may move to another document.
"""
import json
import re
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
VERDICTS = ("reproduced", "not_reproduced", "undecided", "not_measured")


@cache
def verdicts():
    return json.loads((ROOT / "docs" / "verdicts.json").read_text())


@cache
def data(name):
    """Data of the report that stand nowhere else."""
    return json.loads((ROOT / "docs" / "report" / "data" / name).read_text())


@cache
def documents():
    folders = [ROOT, ROOT / "docs", ROOT / "docs" / "results", ROOT / "docs" / "decisions", ROOT / "ecosystem", ROOT / "profiler", ROOT / "tests" / "faults"]
    return [path for folder in folders if folder.is_dir() for path in sorted(folder.glob("*.md"))]


def cells(line):
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


@cache
def table(head):
    """Rows of the table that begins with this line, and the document that has it."""
    wanted = cells(head)
    for path in documents():
        lines = path.read_text().splitlines()
        for at, line in enumerate(lines):
            if line.startswith("|") and cells(line) == wanted:
                rows = []
                for row in lines[at + 2:]:
                    if not row.startswith("|"):
                        break
                    rows.append(cells(row))
                return rows, path.relative_to(ROOT)
    raise SystemExit(f"figures: no document has a table with the head {head}")


def find(pattern):
    """The first match in a document, and the document."""
    for path in documents():
        match = re.search(pattern, path.read_text(), re.S)
        if match:
            return match, path.relative_to(ROOT)
    raise SystemExit(f"figures: no document has {pattern}")


def value(cell):
    """The first number of a cell; None where there is none."""
    match = re.search(r"-?\d[\d,]*\.?\d*", cell)
    return float(match[0].replace(",", "")) if match else None


def paper_of(source):
    """The paper that a scenario's source names first."""
    for prefix, name in (("Breakwater", "Breakwater"), ("Cho, thesis", "Thesis"), ("Hoover", "Hoover"), ("µTune", "µTune"), ("Poster", "Poster")):
        if source.startswith(prefix):
            return name
    return "others"
