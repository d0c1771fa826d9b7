"""The documentation's Python code runs unchanged."""

import re
from pathlib import Path

import leeward as lw

ROOT = Path(__file__).parents[2]


def blocks(path: str) -> list[str]:
    """Python blocks of a page, in order, without the indentation of a list around them."""
    found = re.findall(r"^( *)```python\n(.*?)^ *```$", (ROOT / path).read_text(), re.MULTILINE | re.DOTALL)
    return ["\n".join(line.removeprefix(indent) for line in text.split("\n")) for indent, text in found]


def test_five_lines_give_a_figure(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (code,) = (block for block in blocks("README.md") if "import leeward" in block)
    assert len([line for line in code.split("\n") if line.strip()]) <= 5
    assert code in blocks("python/README.md"), "the package's own page says the same"
    exec(compile(code, "README.md", "exec"), {})
    (figure,) = tmp_path.glob("*.svg")
    assert "</svg>" in figure.read_text() and figure.stat().st_size > 10_000


def test_an_idea_becomes_a_figure_in_twenty_lines(tmp_path, monkeypatch, short):
    monkeypatch.chdir(tmp_path)
    first, *others = blocks("docs/python.md")
    written = [line for line in first.split("\n") if line.strip() and not line.strip().startswith('"""')]
    assert len(written) <= 20, "the guide promises twenty lines"
    names: dict = {"__name__": "guide"}
    exec(compile(first, "docs/python.md", "exec"), names)
    assert {path.name for path in tmp_path.iterdir()} == {"goodput.svg", "tail.svg"}
    for figure in tmp_path.iterdir():
        text = figure.read_text()
        assert all(f"<!-- {label} -->" in text for label in ("none", "breakwater", "Budget")), "three lines with their names"
    # The other blocks simulate for hours: they run here with a short scenario.
    assert len(others) >= 2
    names["scenario"] = short.controllers("none", "breakwater", names["Budget"]).set("workload.demand", [1.5])
    for block in others:
        exec(compile(block, "docs/python.md", "exec"), names)
    assert isinstance(names["swept"], lw.Sweep) and isinstance(names["found"], lw.Tuned)
    (call,) = re.findall(r"`(lw\.sweep\(.*?seeds=3\))`", (ROOT / "docs/python.md").read_text())
    assert set(eval(call, names).table().column("label")) == {"Budget"}
