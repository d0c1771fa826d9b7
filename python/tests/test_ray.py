"""Ray: the same bytes, workers that die, load from two nodes.

All tests use one cluster of two nodes on this machine.
"""

import os
import signal
import subprocess
from pathlib import Path

import pytest
import ray
from ray.cluster_utils import Cluster

import leeward as lw
from test_sweep import GRID, kills_once


@pytest.fixture(scope="module")
def cluster():
    """A Ray cluster of two nodes with one CPU each."""
    options = {"num_cpus": 1, "object_store_memory": 100 * 2**20, "include_dashboard": False}
    made = Cluster(initialize_head=True, head_node_args=options)
    made.add_node(num_cpus=1, object_store_memory=100 * 2**20)
    ray.init(address=made.address, log_to_driver=False)
    yield made
    ray.shutdown()
    made.shutdown()


def test_ray_gives_the_same_bytes(cluster, short):
    assert len([node for node in ray.nodes() if node["Alive"]]) == 2
    one = lw.sweep(short, GRID, seeds=2, on="threads")
    assert lw.sweep(short, GRID, seeds=2, on="ray").to_bytes() == one.to_bytes()
    assert lw.sweep(short, GRID, seeds=2, on="auto", progress=False).to_bytes() == one.to_bytes()


def test_a_worker_that_is_killed_changes_nothing(cluster, short, tmp_path):
    marker = tmp_path / "killed"
    grid = {"controller": [kills_once(str(marker))], "demand": [0.8, 2.0]}
    swept = lw.sweep(short, grid, seeds=3, on="ray")
    assert marker.exists()
    assert swept.to_bytes() == lw.sweep(short, grid, seeds=3, on="threads").to_bytes()


def test_an_exception_of_a_controller_comes_back(cluster, short):
    class Fails(lw.Controller):
        def tick(self, signals):
            raise LookupError("on a worker")

    with pytest.raises(LookupError, match="on a worker"):
        lw.sweep(short, {"controller": [Fails], "demand": [0.8]}, on="ray")


@pytest.fixture(scope="module")
def server():
    """Address of a running `leeward serve` with the synthetic service."""
    program = Path(os.environ["LEEWARD"])
    serving = subprocess.Popen([program, "serve", "--listen", "127.0.0.1:0", "--cores", "1"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    address = None
    while address is None:
        line = serving.stdout.readline()
        assert line, "the server has ended"
        address = next((word.rstrip(",.;") for word in line.split() if word.startswith("127.0.0.1:")), None)
    yield address
    serving.send_signal(signal.SIGINT)
    serving.wait(timeout=20)


def test_load_from_two_nodes_is_the_same_schedule_merged_without_loss(cluster, server):
    options = {"demand": 2000, "clients": 20, "duration": "1500ms", "warmup": "500ms", "slo": "10ms"}
    together = lw.load(2, server, **options)
    alone = lw.load(None, server, **options)
    assert together.generators == 2
    # One generator or two: each request of the schedule is issued once.
    assert together.totals["offered"] == alone.totals["offered"]
    assert sum(count for _, count in together.buckets()) == together.percentiles()["count"]
    # The number of answers depends on the machine.
    assert 0 < together.totals["completed"] <= together.totals["offered"]
    parts = [lw._leeward.load(server, index=index, of=2, demand_rps=2000.0, clients=20, duration="300ms", warmup="100ms", service="const:5us",
                              controller="none", params=[], slo="10ms", rtt="10us", seed=1) for index in range(2)]
    merged = lw._leeward.merge(parts)
    counted: dict[float, int] = {}
    for part in parts:
        for value, count in part.buckets("latency"):
            counted[value] = counted.get(value, 0) + count
    assert dict(merged.buckets("latency")) == counted
    assert merged.totals["offered"] == sum(part.totals["offered"] for part in parts)


def test_load_that_can_not_be(cluster):
    with pytest.raises(lw.LoadError, match="demand"):
        lw.load(None, "127.0.0.1:1", demand=float("nan"))
    with pytest.raises(lw.LoadError, match="warmup"):
        lw.load(None, "127.0.0.1:1", demand=10, duration="1s", warmup="2s")
    with pytest.raises(lw.LoadError, match="connection 1"):
        lw.load(None, "127.0.0.1:1", demand=10, clients=1)
    with pytest.raises(lw.ClusterError, match="there is no node 10.9.9.9"):
        lw.load(["10.9.9.9"], "127.0.0.1:1", demand=10)
