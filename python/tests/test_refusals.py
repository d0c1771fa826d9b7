"""Wrong input raises an exception of this package, with the file, the line and the key."""

import pickle
import subprocess
import sys

import numpy
import pytest

import leeward as lw


@pytest.mark.parametrize(
    ("path", "value", "key", "part"),
    [
        ("workload.cleints", 5, "workload.cleints", "unknown key"),
        ("network.rtt", 30, "network.rtt", "is not a duration"),
        ("network.rtt", "30", "network.rtt", "is not a duration"),
        ("workload.clients", 0, "workload.clients", "from 1 to"),
        ("workload.demand", float("nan"), "workload.demand", "finite number"),
        ("workload.demand", float("inf"), "workload.demand", "finite number"),
        ("controller.breakwater.params.targte", "80us", "controller.params.targte", "unknown parameter"),
        ("controller.breakwater.params.target", "80", "target", "duration"),
        ("workload.clients", object(), "workload.clients", "is not a value"),
        ("workload.demand", b"0.8", "workload.demand", "is not a value"),
        ("workload.demand", bytearray(3), "workload.demand", "is not a value"),
        ("workload.demand", {0.8: 1}, "workload.demand", "is not a value"),
        ("workload.demand", [0.8] * 100_000, "workload.demand", "100000 values; accepted: 1 to 1000"),
        ("workload.demand", numpy.full(100_000, 0.8), "workload.demand", "100000 values; accepted: 1 to 1000"),
        ("workload.demand", 1e-9, "workload.demand", "less than one in"),
        ("workload.demand", 0, "workload.demand", "`0x` is not a demand above zero"),
        (3, 4, "set", "accepted: a key of the scenario"),
    ],
)
def test_a_wrong_value_names_its_key(path, value, key, part):
    with pytest.raises(lw.ScenarioError) as caught:
        lw.scenario("bw-overall").set(path, value)
    assert part in str(caught.value)
    assert key.split(".")[-1] in caught.value.key or key in str(caught.value)
    assert isinstance(caught.value, ValueError) and isinstance(caught.value, lw.LeewardError)
    again = pickle.loads(pickle.dumps(caught.value))
    assert (str(again), again.place, again.key) == (str(caught.value), caught.value.place, caught.value.key)


def test_a_file_names_its_line(tmp_path):
    text = lw.scenario("bw-overall").text.replace("clients = 1000", "clients = 0")
    path = tmp_path / "mine.toml"
    path.write_text(text)
    with pytest.raises(lw.ScenarioError) as caught:
        lw.scenario(path)
    line = text.split("\n").index("clients = 0") + 1
    assert caught.value.place == f"{path}:{line}" and caught.value.key == "workload.clients"


def test_what_is_not_there(tmp_path, short):
    with pytest.raises(lw.ScenarioError, match="there is no scenario `bw-nothing`"):
        lw.scenario("bw-nothing")
    with pytest.raises(lw.ScenarioError, match="nowhere.toml"):
        lw.scenario(tmp_path / "nowhere.toml")
    with pytest.raises(lw.ScenarioError, match="there is no `sedum`"):
        short.controllers("sedum")
    with pytest.raises(lw.ScenarioError, match="run.seeds"):
        short.run(seeds=0)
    with pytest.raises(lw.ResultsError, match="accepted: points"):
        short.run(seeds=1).table("pionts")
    with pytest.raises(lw.ResultsError, match="there is no column"):
        short.run(seeds=1).table().column("godput")
    with pytest.raises(lw.ResultsError, match="accepted: polars"):
        short.run(seeds=1).frame("excel")
    with pytest.raises(lw.ResultsError, match="nothing there"):
        lw.read(tmp_path / "nothing")


def test_sweeps_that_can_not_be(short, tmp_path):
    with pytest.raises(lw.SweepError, match="accepted: auto, threads"):
        lw.sweep(short, {"demand": [1.0]}, on="spark")
    with pytest.raises(lw.SweepError, match="no values"):
        lw.sweep(short, {"demand": []})
    with pytest.raises(lw.SweepError, match="twice"):
        lw.sweep(short, {"demand": [1.0], "workload.demand": [2.0]})
    with pytest.raises(lw.SweepError, match="seeds"):
        lw.sweep(short, {"demand": [1.0]}, seeds=0)
    with pytest.raises(lw.ScenarioError, match="is not a duration"):
        lw.sweep(short, {"rtt": ["10us", "30"]})
    (tmp_path / "other.txt").write_text("precious")
    with pytest.raises(lw.SweepError, match="not empty"):
        lw.sweep(short, {"demand": [1.0]}, out=tmp_path)


@pytest.mark.parametrize(
    ("options", "key"),
    [
        ({"seeds": "2"}, "run.seeds"),
        ({"seeds": 1.5}, "run.seeds"),
        ({"seeds": 10**6}, "run.seeds"),
        ({"seed": -1}, "seed"),
        ({"seed": 2**63}, "seed"),
        ({"seed": float("nan")}, "seed"),
        ({"threads": 0}, "threads"),
        ({"threads": 10**9}, "threads"),
    ],
)
def test_a_wrong_number_of_a_run_names_itself(short, options, key):
    with pytest.raises(lw.ScenarioError, match="accepted: a whole number") as caught:
        short.run(**options)
    assert caught.value.key == key
    if key == "run.seeds":
        options = {"seeds": options["seeds"] if options["seeds"] != 10**6 else 2**40}
    elif key == "threads":
        options = {"workers": options["threads"]}
    with pytest.raises(lw.SweepError, match="accepted: a whole number"):
        lw.sweep(short, {"demand": [1.0]}, **options)


class NoController:
    """A class that decides nothing."""


@pytest.mark.parametrize("wanted", [3, None, 1.5, ["none"], object(), NoController, b"none", len])
def test_a_controller_that_is_none(short, wanted):
    with pytest.raises(lw.ScenarioError, match=r"controller.*accepted: .*leeward\.Controller") as caught:
        short.controllers(wanted)
    assert caught.value.key.startswith("controller")
    with pytest.raises(lw.LeewardError, match="controller"):
        lw.sweep(short, {"controller": [wanted], "demand": [1.0]})
    with pytest.raises(lw.ScenarioError, match="controller.Mine"):
        short.controllers(Mine=wanted)


@pytest.mark.parametrize("label", ["", " ", "x=1", "a" * 61, "a\nb"])
def test_a_label_is_as_in_a_scenario_file(short, label):
    class Mine(lw.Controller):
        pass

    with pytest.raises(lw.ScenarioError, match="1 to 60 letters"):
        short.controllers(**{label: Mine})


def test_no_controller_at_all(short):
    with pytest.raises(lw.ScenarioError, match="controller: none is named; accepted: .*breakwater") as caught:
        short.controllers()
    assert caught.value.key == "controller"
    with pytest.raises(lw.SweepError, match="controller: no values"):
        lw.sweep(short, {"controller": [], "demand": [1.0]})


# Values that no argument accepts; each test adds others.
ODD = [object(), b"1", {}, 1j]


@pytest.mark.parametrize(
    ("key", "values"),
    [
        ("address", [3, None, *ODD]),
        ("demand", [0, -1, float("nan"), float("inf"), "fast", None, True, 10**400, *ODD]),
        ("clients", [0, 1.5, "10", 2**40, None, True, *ODD]),
        ("duration", [5, 5.0, None, "5", "5 years", *ODD]),
        ("warmup", [1, None, "1", "5s", *ODD]),
        ("service", [10, None, "exp:0us", "slow", *ODD]),
        ("controller", [3, None, "sedum", *ODD]),
        ("params", ["target=80us", [("target", "80us")], {"target": object()}, {3: "80us"}, {"targte": "80us"}, object(), b"1"]),
        ("slo", [200, None, "200", *ODD]),
        ("rtt", [10, None, "10", *ODD]),
        ("seed", [-1, 1.5, "1", 2**64, None, *ODD]),
        ("cluster", [3, *ODD]),
        ("hosts", [0, -1, 1.5, "node", [3], True, *ODD]),
    ],
)
def test_an_argument_of_load_names_itself(key, values):
    for value in values:
        arguments = {"hosts": None, "address": "127.0.0.1:1", "demand": 10, "controller": "breakwater"} | {key: value}
        with pytest.raises(lw.LoadError, match=rf"^{key}\b") as caught:
            lw.load(**arguments)
        assert "accepted" in str(caught.value) or "is not" in str(caught.value) or "unknown" in str(caught.value) or "nothing" in str(caught.value), caught.value


@pytest.mark.parametrize(
    ("key", "values"),
    [
        ("scenario", ["bw-overall", None, *ODD]),
        ("grid", [None, 3, "demand", [("demand", [1.0])], {3: [1.0]}, {"demand": 3}, {"demand": "1x"}, {"demand": b"1"}, {"demand": None}]),
        ("on", [3, None, "spark", *ODD]),
        ("workers", [0, 1.5, "2", *ODD]),
        ("out", [3, "a\0b", *ODD]),
        ("table", [3, None, *ODD]),
        ("address", [3, *ODD]),
    ],
)
def test_an_argument_of_a_sweep_names_itself(short, key, values):
    for value in values:
        arguments = {"scenario": short, "grid": {"demand": [1.0]}, "on": "threads"} | {key: value}
        with pytest.raises(lw.SweepError, match=rf"{key}|demand") as caught:
            lw.sweep(**arguments)
        assert "accepted" in str(caught.value), caught.value


def test_other_arguments_name_themselves(short, tmp_path):
    results = short.set("workload.demand", [0.8]).controllers("none").run(seeds=1)
    with pytest.raises(lw.ResultsError, match="no windows.*run.window"):
        results.series("delay_us")
    with pytest.raises(lw.ResultsError, match="no windows.*run.window"):
        results.plot("delay", "time")
    for odd in [3, None, *ODD]:
        with pytest.raises(lw.ScenarioError, match="scenario: "):
            lw.scenario(odd)
        with pytest.raises(lw.ResultsError, match="path: "):
            lw.read(odd)
        with pytest.raises(lw.ResultsError, match="table: "):
            results.table(odd)
        with pytest.raises(lw.ResultsError, match="field: "):
            results.series(odd)
        with pytest.raises(lw.ResultsError, match="there is no column"):
            results.table().column(odd)
        with pytest.raises(lw.ResultsError, match="accepted: polars"):
            results.frame(odd)
        with pytest.raises(lw.ResultsError, match="y: "):
            results.plot(odd)
        with pytest.raises(lw.ResultsError, match="path: "):
            results.report(odd)
        with pytest.raises(lw.ResultsError, match="folder: "):
            results.save(odd)
    (tmp_path / "_sweep.json").write_text("[]")
    with pytest.raises(lw.SweepError, match="no plan of a sweep"):
        lw.read(tmp_path)


@pytest.mark.parametrize(
    ("key", "values"),
    [
        ("scenario", ["bw-overall", None, *ODD]),
        ("space", [None, 3, {3: (1, 2)}, {"target": 3}, {"target": []}, {"target": ("160us", "20us")}, {"target": (1, "20us")}]),
        ("trials", [0, 1.5, "3", None]),
        ("seeds", [0, 1.5, "3", None]),
        ("held_out", [0, 1.5, "3", None]),
        ("seed", [-1, 1.5, "3", None]),
        ("objective", [3, None, *ODD]),
    ],
)
def test_an_argument_of_a_search_names_itself(short, key, values):
    for value in values:
        arguments = {"scenario": short, "space": {"target": ("20us", "160us")}, "controller": "breakwater", "trials": 1} | {key: value}
        with pytest.raises(lw.SweepError, match=rf"^({key}|target)\b") as caught:
            lw.tune(**arguments)
        assert "accepted" in str(caught.value), caught.value


def test_a_cluster_that_is_not_there(short):
    with pytest.raises(lw.ClusterError, match="no cluster at 127.0.0.1:1"):
        lw.sweep(short, {"demand": [1.0]}, on="ray", address="127.0.0.1:1")


def test_no_library_is_needed_and_a_missing_one_is_named(tmp_path):
    # An interpreter with this package, in which no optional library can be imported.
    code = f"""
import sys
class Nothing:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {{"polars", "pandas", "pyarrow", "matplotlib", "ray", "optuna", "tqdm", "numpy", "cloudpickle"}}:
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Nothing())
import leeward as lw
s = lw.scenario("bw-overall").quick().set({{"workload.clients": 20, "run.duration": "4ms", "run.warmup": "1ms"}})
assert len(s.run(seeds=1).table()) > 0
g = lw.sweep(s, {{"controller": ["seda"], "demand": [0.8]}}, out={str(tmp_path / "set")!r})
assert len(g.table()) == 1
for call, extra in ((lambda: g.frame("polars"), "frames"), (lambda: g.plot(), "plot"), (lambda: lw.tune(s, {{}}), "tune"),
                    (lambda: lw.sweep(s, {{}}, on="ray"), "ray")):
    try:
        call()
    except lw.MissingExtra as error:
        assert f"leeward[{{extra}}]" in str(error), error
    else:
        raise AssertionError(extra)
"""
    subprocess.run([sys.executable, "-c", code], check=True)
