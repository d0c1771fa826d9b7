"""Scenarios, runs, frames, claims and reports."""

import json
import pickle

import pandas
import polars
import pyarrow
import pytest

import leeward as lw


def test_a_run_is_the_programs_and_the_same_on_any_number_of_threads(short):
    one, two = short.run(seeds=1, threads=1), short.run(seeds=1, threads=2)
    assert one.to_json() == two.to_json()
    told = json.loads(one.to_json())
    assert told["scenario"] == "bw-overall" and told["overrides"][-1] == "run.seeds=1"
    assert short.run(seeds=1, seed=2).to_json() != one.to_json()


def test_frames_of_all_libraries_have_the_same_values(short):
    results = short.run(seeds=2)
    frames = {kind: results.frame(kind) for kind in ("polars", "pandas", "arrow")}
    assert isinstance(frames["polars"], polars.DataFrame)
    assert isinstance(frames["pandas"], pandas.DataFrame)
    assert isinstance(frames["arrow"], pyarrow.Table)
    points = json.loads(results.to_json())["points"]
    for field in ("label", "goodput_rps", "clients", "p99_us", "seed"):
        expected = [point[field] for point in points]
        assert frames["polars"][field].to_list() == expected
        assert list(frames["pandas"][field]) == expected
        assert frames["arrow"][field].to_pylist() == expected
    assert frames["polars"].schema["clients"] == polars.Int64
    assert "lock_drop_rate" not in frames["polars"].columns, "no row has one"


def test_arrow_shares_the_tables_memory(short):
    table = short.run(seeds=1).table()
    first, second = pyarrow.table(table), pyarrow.table(table)
    address = [one["goodput_rps"].chunk(0).buffers()[1].address for one in (first, second)]
    assert address[0] == address[1]
    del table
    assert first["goodput_rps"].to_pylist() == second["goodput_rps"].to_pylist()


def test_absent_values_and_flags_survive():
    results = lw.scenario("bw-shift").quick().set({"workload.clients": 40}).controllers("breakwater", "none")
    table = results.run(seeds=1).table("shifts")
    frame = polars.DataFrame(table)
    assert frame.schema["recovered"] == polars.Boolean
    assert frame["recovered"].to_list() == table.column("recovered")
    assert lw.Table.from_bytes(table.to_bytes()).to_bytes() == table.to_bytes()


def test_series_claims_and_reports(short, tmp_path):
    results = lw.scenario("bw-shift").quick().set({"workload.clients": 40}).controllers("breakwater").run(seeds=1)
    series = results.series("delay_us")
    assert set(series.columns) == {"label", "seed", "start_s", "demand_rps", "delay_us"} and len(series) > 10
    # Demands are multiples of a capacity that is no round number.
    demand = series["demand_rps"].max()
    assert lw.plot.is_equal(demand, demand * 1.004) and not lw.plot.is_equal(demand, demand * 1.006)
    assert not lw.plot.is_equal(1_000, 1_001), "whole numbers are exact"
    claims = short.run(seeds=2).claims
    verdicts = {claim.verdict for claim in claims}
    assert verdicts <= {"reproduced", "not_reproduced", "undecided", "not_applicable"} and verdicts
    # Two seeds have an interval; runs of 4 ms have hardly settled.
    assert any(claim.interval for claim in claims)
    sides = [side for claim in claims for side in claim.settling]
    assert {side.settled for side in sides} and all(side.after_s > 0 for side in sides)
    results.report(tmp_path / "report.html")
    assert (tmp_path / "report.html").read_text().startswith("<!DOCTYPE html>")
    assert "srcdoc" in results._repr_html_() and "breakwater" in short._repr_html_()


def test_results_are_saved_read_and_pickled(short, tmp_path):
    results = short.run(seeds=1)
    results.save(tmp_path / "out")
    assert lw.read(tmp_path / "out").to_json() == results.to_json()
    assert lw.read(tmp_path / "out" / "result.json").to_json() == results.to_json()
    assert pickle.loads(pickle.dumps(results)).to_json() == results.to_json()
    assert pickle.loads(pickle.dumps(short)).run(seeds=1).to_json() == results.to_json()
    table = results.table()
    assert pickle.loads(pickle.dumps(table)).to_bytes() == table.to_bytes()


def test_a_random_scenario_is_found_by_its_name():
    random = lw.scenario("random-91")
    assert random.id == "random-91" and "auto" in random.labels
    for name in ("random-", "random-x"):
        with pytest.raises(lw.ScenarioError):
            lw.scenario(name)


def test_progress_is_told_and_its_exceptions_end_the_run(short):
    told = []
    short.native().run(1, 1, None, 1, lambda done, total: told.append((done, total)))
    assert told[-1][0] == told[-1][1] > 0

    def fails(done: int, total: int) -> None:
        raise KeyError("from the callback")

    with pytest.raises(KeyError, match="from the callback"):
        short.native().run(1, 1, None, 1, fails)


@pytest.mark.parametrize("seed", [2**32 + 1, 2**53 - 1_500])
def test_a_seed_keeps_all_its_digits(short, seed):
    one = short.controllers("none").set("workload.demand", [0.8])
    results = one.run(seeds=2, seed=seed)
    for kind in ("polars", "pandas", "arrow"):
        assert list(results.frame(kind)["seed"].to_numpy()) == [seed, seed + 1]
    swept = lw.sweep(one, {"demand": [0.8]}, seeds=2, seed=seed)
    assert swept.table().column("seed") == [seed, seed + 1]
    assert lw.Table.from_bytes(swept.to_bytes()).column("seed") == [seed, seed + 1]


def test_a_figure_shows_itself(short):
    figure = short.run(seeds=1).plot("goodput")
    assert figure._repr_png_().startswith(b"\x89PNG")
    assert type(pickle.loads(pickle.dumps(figure))) is type(figure)


def test_controllers_and_fields_are_listed():
    assert "bw-overall" in lw.scenarios()
    assert "target" in lw.controllers()["breakwater"]
    assert lw.fields()["p99_us"] == "99th percentile latency, µs"
