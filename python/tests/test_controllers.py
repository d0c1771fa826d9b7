"""Controllers written in Python."""

import subprocess
import sys
import traceback

import pytest

import leeward as lw


class Threshold(lw.Controller):
    """Rejects while the queueing delay is over a target."""

    params = {"target": "80us", "strict": True}

    def request(self, arrival):
        return arrival.delay_us < self.target


class Slow(lw.Controller):
    """Admits a share of the requests: less while the queueing delay is over a target."""

    period = "100us"
    params = {"target": "80us", "step": 0.05}

    def begin(self):
        self.admit = 1.0

    def tick(self, signals):
        over = signals.delay_us > self.target
        self.admit = max(0.05, self.admit * 0.9) if over else min(1.0, self.admit + self.step)
        return {"admit": self.admit}


class Law(lw.Controller):
    """Breakwater's pool law (§3.2.1), in Python."""

    params = {"target": "80us"}

    def pool(self, signals, pool):
        if signals.delay_us < self.target:
            return pool.total + max(1.0, 0.001 * pool.sessions)
        return pool.total * max(0.5, 1 - 0.02 * (signals.delay_us - self.target) / self.target)


def goodput(results, label, demand=2.0):
    frame = results.frame("polars")
    return frame.filter((frame["label"] == label) & (frame["demand_ratio"] == demand))["goodput_rps"].mean()


@pytest.fixture(scope="module")
def overload():
    return lw.scenario("bw-overall").quick().set({"workload.demand": [2.0], "workload.clients": 100, "run.duration": "24ms", "run.warmup": "4ms"})


@pytest.mark.parametrize("cls", [Threshold, Slow, Law])
def test_a_controller_controls_and_repeats(overload, cls):
    scenario = overload.controllers("none", cls)
    results = scenario.run(seeds=1)
    assert goodput(results, cls.__name__) > 2 * goodput(results, "none")
    assert scenario.run(seeds=1).to_json() == results.to_json()


def test_parameters_are_the_scenarios(overload):
    scenario = overload.controllers(mine=Threshold)
    tails = {}
    for target in ("20us", "2ms"):
        results = scenario.set("controller.mine.params.target", target).run(seeds=1)
        tails[target] = results.table().column("p99_us")[0]
    assert tails["20us"] < tails["2ms"]
    with pytest.raises(lw.ScenarioError, match="unknown parameter `targte`"):
        scenario.set("controller.mine.params.targte", "20us")
    with pytest.raises(lw.ScenarioError, match="duration"):
        scenario.set("controller.mine.params.target", "20")


def test_the_pool_has_breakwaters_parameters(overload):
    scenario = overload.controllers(mine=Law).set({"controller.mine.params.aqm": "off"})
    assert scenario.run(seeds=1).table().column("drop_rate") == [0.0]


def broken(**methods):
    return type("Broken", (lw.Controller,), methods)


@pytest.mark.parametrize(
    ("cls", "part"),
    [
        (broken(tick=lambda self, signals: {"admti": 1}), "the key `admti`; accepted: admit"),
        (broken(tick=lambda self, signals: {"admit": float("nan")}), "admit = nan; accepted: a number from 0 to 1"),
        (broken(tick=lambda self, signals: {"admit": 2}), "admit = 2"),
        (broken(tick=lambda self, signals: {"delay": "80"}), "such as \"80us\""),
        (broken(tick=lambda self, signals: {"limit": -1}), "limit = -1"),
        (broken(tick=lambda self, signals: {"priority": 0}), "priority = 0"),
        (broken(tick=lambda self, signals: 7), "tick returned 7; accepted: a dict, or None"),
        (broken(request=lambda self, arrival: None), "request returned None; accepted: True or False"),
        (broken(request=lambda self, arrival: 1), "request returned 1"),
        (broken(pool=lambda self, signals, pool: float("nan")), "pool returned nan"),
        (broken(pool=lambda self, signals, pool: "many"), "pool returned 'many'"),
        (broken(), "decides nothing"),
        (broken(pool=lambda *_: 1, request=lambda *_: True), "`pool` alone"),
        (broken(tick=lambda *_: None, period="1"), "period: accepted"),
        (broken(tick=lambda *_: None, params={"a": "b"}), "params: a: accepted"),
        (broken(tick=lambda *_: None, params={"a": float("nan")}), "a finite number"),
    ],
)
def test_nonsense_is_a_controllers_error(overload, cls, part):
    with pytest.raises(lw.ControllerError) as caught:
        overload.controllers(cls).run(seeds=1)
    assert part in str(caught.value)


class Raises(lw.Controller):
    """Divides by zero at the hundredth request."""

    def begin(self):
        self.seen = 0

    def request(self, arrival):
        self.seen += 1
        return 1 / (100 - self.seen) != 0


@pytest.mark.parametrize("on", ["run", "threads", "processes"])
def test_an_exception_ends_the_run_with_its_traceback(overload, on):
    scenario = overload.controllers(Raises)
    with pytest.raises(ZeroDivisionError) as caught:
        if on == "run":
            scenario.run(seeds=1)
        else:
            lw.sweep(scenario, {"demand": [2.0]}, on=on)
    text = "".join(traceback.format_exception(caught.value))
    assert "1 / (100 - self.seen)" in text
    # The exception does not disturb the next run.
    assert len(overload.controllers("seda").run(seeds=1).table()) == 1


def test_an_exception_of_the_slow_half_on_several_threads(overload):
    class Fails(lw.Controller):
        def tick(self, signals):
            raise LookupError("from the tick")

    with pytest.raises(LookupError, match="from the tick"):
        overload.controllers(Fails).set("workload.demand", [0.5, 1.0, 2.0]).run(seeds=2, threads=2)


def test_a_method_that_does_not_return_is_ended():
    code = """
import leeward as lw
class Endless(lw.Controller):
    def request(self, arrival):
        while True:
            pass
try:
    lw.scenario("bw-overall").quick().controllers(Endless).run(seeds=1)
except lw.ControllerEndless as error:
    print("ended:", error)
"""
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, timeout=120)
    assert "ended: a controller's method has not returned" in done.stdout


def test_classes_keep_their_order_and_names(overload):
    class First(Threshold):
        pass

    class Second(Threshold):
        pass

    assert overload.controllers(Second, First, "none").labels == ["Second", "First", "none"]
    with pytest.raises(lw.ScenarioError, match="`First` is there twice"):
        overload.controllers(First, First=Second)
    edge = overload.controllers("edge")
    varied = edge.set("controller.edge.vary.target", ["40us", "80us"])
    assert varied.labels == ["edge target=40us", "edge target=80us"]
    with pytest.raises(lw.ScenarioError, match="has another label now"):
        edge.set("controller.edge.label", "other")


def test_a_demand_of_a_shift_is_a_multiple_of_the_capacity():
    shifts = lw.scenario("bw-shift").quick()
    assert shifts.set("workload.shift.0.demand", 0.5).overrides == ("workload.shift.0.demand=0.5x",)
