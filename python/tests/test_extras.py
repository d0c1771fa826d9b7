"""Figures and searches."""

import matplotlib.figure
import pytest

import leeward as lw
from leeward import plot


@pytest.fixture(scope="module")
def swept(short):
    return lw.sweep(short, {"controller": ["breakwater", "seda"], "demand": [0.8, 2.0], "clients": [20, 40]}, seeds=2)


def test_figures_wear_the_reports_colours(short, swept):
    figure = swept.plot("goodput", by="controller", where={"clients": 40})
    assert isinstance(figure, matplotlib.figure.Figure)
    (axes,) = figure.axes
    assert {line.get_label(): line.get_color() for line in axes.lines} == {"breakwater": "#0b62a8", "seda": "#0b8a5b"}
    assert axes.get_xlabel() == "Demand over capacity" and axes.get_ylabel() == "Goodput [1/s]"
    assert short.run(seeds=1).plot("tail").axes[0].get_yscale() == "log"


def test_every_kind_of_figure_is_drawn(swept, tmp_path):
    series = lw.scenario("bw-shift").quick().set({"workload.clients": 40}).controllers("breakwater").run(seeds=1)
    figures = [
        series.plot("delay", "time"),
        swept.plot("p99", "demand", "clients", only="seda"),
        swept.heat("goodput", "demand", "clients", only="seda"),
        plot.cdf(swept, "p99_us"),
    ]
    for index, figure in enumerate(figures):
        figure.savefig(tmp_path / f"{index}.png")
        assert (tmp_path / f"{index}.png").stat().st_size > 5_000
    with pytest.raises(lw.ResultsError, match="accepted:"):
        swept.plot("godput")
    with pytest.raises(lw.ResultsError, match="several values of clients in one line or cell; accepted: by=clients, or where="):
        swept.plot("goodput")
    with pytest.raises(lw.ResultsError, match="where: no row has clients=7; accepted: "):
        swept.plot("goodput", where={"clients": 7})
    with pytest.raises(lw.ResultsError, match="several variants"):
        swept.heat()
    with pytest.raises(lw.ResultsError, match="several variants"):
        swept.plot("p99", "demand", "clients")
    with pytest.raises(lw.ResultsError, match="accepted: breakwater, seda"):
        swept.heat(only="sedum")


def test_a_figure_of_one_variant_has_its_rows_alone(swept):
    (axes,) = swept.plot("goodput", "demand", "clients", only="seda").axes
    frame = swept.frame("polars")
    expected = frame.filter((frame["label"] == "seda") & (frame["clients"] == 20) & (frame["demand_ratio"] == 2.0))["goodput_rps"].mean()
    assert [line.get_label() for line in axes.lines] == ["20", "40"]
    assert axes.lines[0].get_ydata()[-1] == pytest.approx(expected)
    assert axes.get_title() == "seda" and axes.get_legend().get_title().get_text() == "Clients"


def test_a_search_says_what_to_expect_of_seeds_that_it_has_not_seen(short):
    scenario = short.set("workload.demand", [2.0])
    space = {"target": ("10us", "200us")}
    found = lw.tune(scenario, space, controller="seda", trials=6, seeds=1, held_out=2)
    again = lw.tune(scenario, space, controller="seda", trials=6, seeds=1, held_out=2)
    assert found.params == again.params and found.value == again.value, "drawn from the seed"
    expected = found.scenario.run(2, seed=2).table().column("goodput_rps")
    assert found.held_out == sum(expected) / 2
    default = scenario.controllers("seda").run(2, seed=2).table().column("goodput_rps")
    assert found.default == sum(default) / 2
    late = lw.tune(scenario, {"network.rtt": ["10us", "900ms"]}, controller="breakwater", objective="p99_us", trials=8, seeds=1, held_out=1)
    assert late.params == {"network.rtt": "10us"}, "a latency is minimized, and a run without responses has none"
    with pytest.raises(lw.SweepError, match="is not a duration"):
        lw.tune(scenario, {"target": ("10", "200")}, controller="seda", trials=1)
    with pytest.raises(lw.SweepError, match="6 variants"):
        lw.tune(scenario, space, trials=1)
    with pytest.raises(lw.ScenarioError, match="godput"):
        lw.tune(scenario, {"godput": (0.1, 0.2)}, controller="seda", trials=1)
    assert len(repr(scenario)) < 200
