"""Sweeps: the same bytes on all engines, continued data sets, workers that die."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import polars
import pytest

import leeward as lw

GRID = {"controller": ["breakwater", "dagor", "codel"], "demand": [0.8, 2.0]}


@pytest.fixture(scope="module")
def reference(short):
    return lw.sweep(short, GRID, seeds=2, on="threads", workers=1)


def test_rows_are_in_the_grids_order(reference):
    frame = reference.frame("polars")
    assert frame["label"].to_list() == [label for label in GRID["controller"] for _ in range(4)]
    assert frame["demand_ratio"].to_list() == [0.8, 0.8, 2.0, 2.0] * 3
    assert frame["seed"].to_list() == [1, 2] * 6


@pytest.mark.parametrize(("on", "workers"), [("threads", 2), ("threads", 5), ("processes", 2)])
def test_every_engine_gives_the_same_bytes(short, reference, on, workers):
    assert lw.sweep(short, GRID, seeds=2, on=on, workers=workers).to_bytes() == reference.to_bytes()


def test_a_cell_is_a_run(short, reference):
    results = short.controllers("dagor").set("workload.demand", [2.0]).run(seeds=2)
    frame = reference.frame("polars")
    same = frame.filter((frame["label"] == "dagor") & (frame["demand_ratio"] == 2.0))
    assert same["goodput_rps"].to_list() == results.table().column("goodput_rps")


def test_an_axis_that_no_column_tells_is_a_column(short):
    key = "controller.breakwater.params.target"
    frame = lw.sweep(short, {"controller": ["breakwater"], key: ["20us", "160us"], "cores": [4, 8]}, seeds=1).frame("polars")
    # All demands of the quick scenario, for each of the four combinations.
    assert sorted(set(frame[key])) == ["160us", "20us"] and sorted(set(frame["cores"])) == [4.0, 8.0]


def test_a_controller_in_python_is_swept_on_processes(short):
    from test_controllers import Threshold

    grid = {"controller": ["none", Threshold], "demand": [2.0]}
    one = lw.sweep(short, grid, on="threads")
    assert lw.sweep(short, grid, on="processes", workers=2).to_bytes() == one.to_bytes()


def test_a_data_set_has_the_rows_of_the_frame(short, reference, tmp_path):
    swept = lw.sweep(short, GRID, seeds=2, out=tmp_path / "set")
    assert swept.to_bytes() == reference.to_bytes()
    assert lw.read(tmp_path / "set").to_bytes() == reference.to_bytes()
    theirs = polars.read_parquet(tmp_path / "set" / "**/*.parquet", hive_partitioning=True)
    assert len(theirs) == len(reference) and set(theirs["variant"]) == set(GRID["controller"])
    with pytest.raises(lw.SweepError, match="seeds differ|parts"):
        lw.sweep(short, GRID, seeds=3, out=tmp_path / "set")


KILLED = """
import sys
import leeward as lw
import leeward.sweeps
leeward.sweeps.PART = 5
s = lw.scenario("bw-overall").quick().set({"workload.clients": 40, "run.duration": "6ms", "run.warmup": "2ms"})
lw.sweep(s, {"controller": ["breakwater", "dagor"], "demand": [0.8, 2.0]}, seeds=40, on=sys.argv[2], workers=2, out=sys.argv[1])
"""


@pytest.mark.parametrize("on", ["threads", "processes"])
def test_a_sweep_that_is_killed_continues_with_the_same_data_set(on, tmp_path):
    def begin(name: str) -> subprocess.Popen:
        return subprocess.Popen([sys.executable, "-c", KILLED, str(tmp_path / name), on], start_new_session=True)

    def parts(name: str) -> dict[str, bytes]:
        folder = tmp_path / name
        return {str(path.relative_to(folder)): path.read_bytes() for path in folder.glob("*/*.parquet")}

    assert begin("whole").wait(timeout=300) == 0
    first = begin("killed")
    while len(parts("killed")) < 4 and first.poll() is None:
        time.sleep(0.005)
    os.killpg(first.pid, signal.SIGKILL)
    first.wait()
    before = parts("killed")
    assert 4 <= len(before) < len(parts("whole")), "killed in the middle"
    stamps = {name: (tmp_path / "killed" / name).stat().st_mtime_ns for name in before}
    assert begin("killed").wait(timeout=300) == 0
    assert parts("killed") == parts("whole")
    assert stamps == {name: (tmp_path / "killed" / name).stat().st_mtime_ns for name in before}, "what was done stays"
    assert not list((tmp_path / "killed").glob("**/*partial*"))


def kills_once(marker: str) -> type[lw.Controller]:
    """A class of controllers that kill their process at the first tick, unless `marker` exists."""

    class Kills(lw.Controller):
        def tick(self, signals):
            path = Path(marker)
            if not path.exists():
                path.touch()
                os.kill(os.getpid(), signal.SIGKILL)
            return None

    return Kills


def test_a_process_that_dies_changes_nothing(short, tmp_path):
    marker = tmp_path / "killed"
    grid = {"controller": [kills_once(str(marker))], "demand": [0.8, 2.0]}
    swept = lw.sweep(short, grid, seeds=3, on="processes", workers=2)
    assert marker.exists()
    assert swept.to_bytes() == lw.sweep(short, grid, seeds=3, on="threads").to_bytes()


def test_a_changed_controller_or_file_is_another_sweep(short, tmp_path):
    def made(answer: bool) -> type[lw.Controller]:
        class Mine(lw.Controller):
            params = {"answer": answer}

            def request(self, arrival):
                return self.answer

        return Mine

    lw.sweep(short.controllers(made(True)), {"demand": [0.8]}, out=tmp_path / "classes")
    with pytest.raises(lw.SweepError, match="controllers differ"):
        lw.sweep(short.controllers(made(False)), {"demand": [0.8]}, out=tmp_path / "classes")
    (tmp_path / "times.txt").write_text("10us\n20us\n")
    one = short.set({"workload.service": f"file:{tmp_path}/times.txt"})
    lw.sweep(one.controllers("none"), {"demand": [0.8]}, out=tmp_path / "files")
    (tmp_path / "times.txt").write_text("10us\n30us\n")
    with pytest.raises(lw.SweepError, match="files differ"):
        lw.sweep(one.controllers("none"), {"demand": [0.8]}, out=tmp_path / "files")


def test_an_unfinished_data_set_says_so(short, tmp_path):
    lw.sweep(short, {"controller": ["breakwater", "seda"], "demand": [0.8]}, out=tmp_path / "sweep")
    parts = sorted((tmp_path / "sweep").glob("*/*.parquet"))
    parts[0].unlink()
    again = lw.read(tmp_path / "sweep")
    assert "unfinished: 1 of 2 parts" in repr(again)
    with pytest.warns(UserWarning, match="an unfinished sweep: 1 of 2 parts"):
        again.table()


def test_a_damaged_part_is_refused(short, tmp_path):
    lw.sweep(short, {"controller": ["none"], "demand": [0.8]}, out=tmp_path / "sweep")
    (part,) = (tmp_path / "sweep").glob("*/*.parquet")
    whole, table = part.read_bytes(), lw.read(tmp_path / "sweep").table().to_bytes()
    for at in range(4, len(whole) - 8, len(whole) // 97):
        part.write_bytes(whole[:at] + bytes([whole[at] ^ 16]) + whole[at + 1 :])
        try:
            assert lw.read(tmp_path / "sweep").table().to_bytes() == table
        except lw.ResultsError:
            pass


def test_a_class_that_other_processes_can_not_find_is_named(short, monkeypatch):
    class Local(lw.Controller):
        def tick(self, signals):
            return None

    # Without cloudpickle, classes go by their names.
    monkeypatch.setitem(sys.modules, "cloudpickle", None)
    with pytest.raises(lw.SweepError, match="top level of a file"):
        lw.sweep(short, {"controller": [Local], "demand": [0.8]}, on="processes")
