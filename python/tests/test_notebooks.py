"""The notebooks run from the first cell to the last; the repository has them without outputs."""

import json
import os
import re
from pathlib import Path

import nbclient
import nbformat
import pytest

FOLDER = Path(__file__).parents[1] / "notebooks"
NOTEBOOKS = sorted(path.name for path in FOLDER.glob("*.ipynb"))


def executed(name: str, folder: Path) -> nbformat.NotebookNode:
    """Runs a notebook, and returns it with its outputs. An exception in a cell fails the test."""
    notebook = nbformat.read(FOLDER / name, as_version=4)
    nbclient.NotebookClient(notebook, timeout=300, kernel_name="python3", resources={"metadata": {"path": str(folder)}}).execute()
    return notebook


def outputs(notebook: nbformat.NotebookNode, kind: str) -> list[str]:
    """All outputs of a kind: `text/plain` (with printed text), `text/html` or `image/png`."""
    found = []
    for cell in notebook.cells:
        for output in cell.get("outputs", []):
            if output.output_type == "stream" and kind == "text/plain":
                found.append(output.text)
            elif "data" in output and kind in output.data:
                found.append(output.data[kind])
    return found


def test_there_are_three():
    assert NOTEBOOKS == ["controller.ipynb", "slow-request.ipynb", "sweep.ipynb"]


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_outputs_are_not_kept(name):
    cells = json.loads((FOLDER / name).read_text())["cells"]
    code = [cell for cell in cells if cell["cell_type"] == "code"]
    assert code and all(cell["outputs"] == [] and cell["execution_count"] is None for cell in code)


def test_a_controller_beside_breakwater(tmp_path):
    notebook = executed("controller.ipynb", tmp_path)
    assert len(outputs(notebook, "image/png")) == 3
    assert any("Budget" in html for html in outputs(notebook, "text/html"))


def test_a_sweep_and_its_report(tmp_path):
    notebook = executed("sweep.ipynb", tmp_path)
    assert len(outputs(notebook, "image/png")) == 2
    assert "48" in outputs(notebook, "text/plain")
    assert "srcdoc" in outputs(notebook, "text/html")[-1], "the report is shown"


def programs() -> dict[str, str] | None:
    """Programs for the last notebook; None if they or the profiler's run-time are missing."""
    program = Path(os.environ["LEEWARD"])
    traced = Path(os.environ.get("LEEWARD_TRACED", program.parent / "examples/traced"))
    runtime = program.parent.parent / "profiler/libleeward_rt.so"
    if traced.is_file() and runtime.is_file():
        return {"LEEWARD": str(program), "LEEWARD_TRACED": str(traced)}
    if "profiler" in os.environ.get("LEEWARD_REQUIRE", "").split(","):
        raise AssertionError(f"missing: {traced} or {runtime}")
    return None


def test_a_slow_request_from_the_servers_recording_to_the_profilers_timeline(tmp_path, monkeypatch):
    found = programs()
    if found is None:
        pytest.skip("needs `make profiler` and the example `traced`")
    for name, value in found.items():
        monkeypatch.setenv(name, value)
    notebook = executed("slow-request.ipynb", tmp_path)
    said = "\n".join(outputs(notebook, "text/plain"))
    # The server rebuilds its index in each 100th request. Other slow requests wait for it.
    waited = re.search(r"request (\d+) waited for (\S+) in request (\d+)", said)
    assert waited, said
    assert waited.group(2).endswith("rebuild_index") and int(waited.group(3)) % 100 == 0, waited.group(0)
    assert "rebuild_index" in outputs(notebook, "text/html")[-1], "on the timeline"
