"""Bad input is an exception of this package, with the file, the line and the key."""

import pickle
import subprocess
import sys

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


def test_a_cluster_that_is_not_there(short):
    with pytest.raises(lw.ClusterError, match="no cluster at 127.0.0.1:1"):
        lw.sweep(short, {"demand": [1.0]}, on="ray", address="127.0.0.1:1")


def test_no_library_is_needed_and_a_missing_one_is_named(tmp_path):
    # An interpreter that sees this package and nothing else that is installed.
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
