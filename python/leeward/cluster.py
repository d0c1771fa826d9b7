"""Load on a real server from several machines at once, by load generators in actors of Ray."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

from . import _leeward
from .errors import ClusterError, LoadError
from .extras import need
from .values import SEED_MAX, rate, refused, span, text, whole, written

# The limit of `leeward load --clients`.
CLIENTS_MAX = 100_000


class Load:
    """Measurements of one load generator, or of several as one."""

    def __init__(self, native: _leeward.Recording) -> None:
        self.native = native

    @property
    def goodput_rps(self) -> float:
        """Responses per second within the objective, in the measured part."""
        return self.native.goodput_rps

    @property
    def throughput_rps(self) -> float:
        """Responses per second in the measured part."""
        return self.native.throughput_rps

    @property
    def totals(self) -> dict[str, int]:
        """Requests of the whole run by outcome, such as `offered`, `completed` and `dropped`."""
        return self.native.totals

    @property
    def measured(self) -> dict[str, int]:
        """Requests of the measured part by outcome, as in `totals`."""
        return self.native.measured

    @property
    def generators(self) -> int:
        """Number of generators."""
        return self.native.generators

    @property
    def kept(self) -> bool:
        """True if every generator kept its schedule.

        Each then issued 99 of 100 requests within the objective of their due times. Otherwise the
        latencies are the generators' own, and say nothing of the server.
        """
        return self.native.kept

    def percentiles(self, which: str = "latency") -> dict[str, float]:
        """Percentiles: `count`, `mean_us`, `p50_us`, `p90_us`, `p99_us`, `p999_us` and `max_us`.

        `which`: `latency` counts from the time at which a request was due, `latency_from_send` from
        its departure; or `reject_delay`. Raises `ResultsError` for another name.
        """
        return self.native.percentiles(which)

    def buckets(self, which: str = "latency") -> list[tuple[float, int]]:
        """Buckets of a distribution: pairs of the upper end in µs and the count.

        `which`: as in `percentiles`.
        """
        return self.native.buckets(which)

    def cdf(self, which: str = "latency", **options: Any) -> Any:
        """A figure of the cumulative distribution: see `leeward.plot.cdf`."""
        from . import plot

        return plot.cdf(self, which, **options)

    def __repr__(self) -> str:
        if not self.kept:
            return f"<load by {self.generators} generators: not measured, as one did not keep its schedule: it had too little CPU time>"
        tail = self.percentiles()["p99_us"]
        return f"<load by {self.generators} generators: {per_second(self.goodput_rps)}/s in time, p99 {tail:.0f} µs>"


def per_second(rate: float) -> str:
    """A rate as text: four significant digits, or all digits of the integer from 1,000 on."""
    return f"{rate:.0f}" if rate >= 999.95 else f"{rate:.4g}"


def _measured(native: _leeward.Recording, address: str, options: Mapping[str, Any]) -> Load:
    load = Load(native)
    if not load.kept:
        warnings.warn(f"{address} at {per_second(options['demand_rps'])}/s: not measured, as a generator did not keep its schedule; give it a CPU of its own", stacklevel=3)
    return load


def generate(address: str, index: int, of: int, options: Mapping[str, Any]) -> bytes:
    """Runs generator `index` of `of` in this process; returns its recording as bytes.

    The seed draws one schedule for all generators. This one issues the requests of every `of`-th
    client.
    """
    return _leeward.load(address, index=index, of=of, **options).to_bytes()


def load(
    hosts: int | list[str] | None,
    address: str,
    *,
    demand: float,
    clients: int = 1000,
    duration: str = "5s",
    warmup: str = "1s",
    service: str = "exp:10us",
    controller: str = "none",
    params: Mapping[str, str] | None = None,
    slo: str = "200us",
    rtt: str = "10us",
    seed: int = 1,
    cluster: str | None = None,
) -> Load:
    """Loads the server at `address` (`"HOST:PORT"`) in an open loop, and returns the measurements.

    - `hosts`: the number of generators on a Ray cluster; or the addresses of its nodes, one
      generator on each (`ray status` lists them); or None: one generator in this process, without
      Ray.
    - `demand`: requests per second of all clients together.
    - `clients`: connections of all generators together, 1 to 100,000, at least one per generator.
    - `duration`, `warmup`: lengths of the run and of its part that is not measured.
    - `service`: the work that requests ask for, such as `"exp:10us"`.
    - `controller`, `params`: those of the server, which runs `"auto"` unless it was told otherwise.
      Their client half runs in the generators.
    - `slo`, `rtt`: the latency objective, and the round trip without queueing.
    - `seed`: draws the times at which requests are due, before the run.
    - `cluster`: the address of the Ray cluster; by default `RAY_ADDRESS`, or Ray on this machine.

    The schedule does not depend on the number of generators. Latency counts from the time at which
    a request was due. Histograms of several generators are merged bucket by bucket, without loss.
    If a generator did not keep its schedule (`Load.kept`), a `UserWarning` says so.

    Raises `LoadError` for an argument that is not accepted, or if the load fails. Raises
    `ClusterError` if there is no cluster or no such node, or if a generator has no CPU after 60 s.
    """
    address = text("address", address, "HOST:PORT such as 127.0.0.1:7117", LoadError)
    if cluster is not None:
        cluster = text("cluster", cluster, "HOST:PORT of a Ray cluster", LoadError)
    if params is not None and not isinstance(params, Mapping):
        raise refused("params", params, 'a dict of names and values, such as {"target": "80us"}', LoadError)
    options: dict[str, Any] = {
        "demand_rps": rate("demand", demand, LoadError),
        "clients": whole("clients", clients, 1, CLIENTS_MAX, LoadError),
        "duration": span("duration", duration, LoadError),
        "warmup": span("warmup", warmup, LoadError),
        "service": text("service", service, 'what requests ask, such as "exp:10us"', LoadError),
        "controller": text("controller", controller, "the name of a controller", LoadError),
        "params": [(text("params", name, "names of parameters", LoadError), _param(name, value)) for name, value in (params or {}).items()],
        "slo": span("slo", slo, LoadError),
        "rtt": span("rtt", rtt, LoadError),
        "seed": whole("seed", seed, 0, SEED_MAX, LoadError),
    }
    if hosts is None:
        return _measured(_leeward.load(address, index=0, of=1, **options), address, options)
    is_number = isinstance(hosts, int) and not isinstance(hosts, bool)
    if not is_number and not (isinstance(hosts, list | tuple) and all(isinstance(host, str) for host in hosts)):
        raise refused("hosts", hosts, "a number from 1, a list of nodes, or None", LoadError)
    count = hosts if isinstance(hosts, int) else len(hosts)
    if not 1 <= count <= options["clients"]:
        raise LoadError(f"hosts: {count}; accepted: 1 to {options['clients']}, the number of clients")
    return _measured(_by_actors(hosts, count, address, options, cluster), address, options)


def _param(name: str, value: Any) -> str:
    """The value of a controller's parameter as text."""
    if not isinstance(value, str | int | float):
        raise refused(f"params.{name}", value, "a text, a number, True or False", LoadError)
    return written(name, value)


def _by_actors(hosts: int | list[str], count: int, address: str, options: dict[str, Any], cluster: str | None) -> _leeward.Recording:
    from .on_ray import join

    ray = need("ray")
    ours = not ray.is_initialized()
    if ours:
        join(ray, None, cluster)
    try:
        actors = [ray.remote(num_cpus=1, **_place(ray, hosts, index))(Generator).remote() for index in range(count)]
        ready, late = ray.wait([actor.ready.remote() for actor in actors], num_returns=count, timeout=60)
        if late:
            raise ClusterError(f"{len(ready)} of {count} generators have a CPU to run on; accepted: fewer hosts, or more nodes")
        # All generators are ready. Each connects and draws the schedule in about the same time; the
        # warm-up covers the difference.
        running = [actor.run.remote(address, index, count, options) for index, actor in enumerate(actors)]
        answers = [_leeward.Recording.from_bytes(answer) for answer in ray.get(running)]
    except ray.exceptions.RayTaskError as error:
        raise error.cause if isinstance(error.cause, Exception) else error from None
    except ray.exceptions.RayError as error:
        raise ClusterError(str(error).splitlines()[0]) from error
    finally:
        if ours:
            ray.shutdown()
    return _leeward.merge(answers)


def _place(ray: Any, hosts: int | list[str], index: int) -> dict[str, Any]:
    """Options that place a generator: on the named node, or spread over the nodes."""
    if isinstance(hosts, int):
        return {"scheduling_strategy": "SPREAD"}
    nodes = {node["NodeManagerAddress"]: node["NodeID"] for node in ray.nodes() if node["Alive"]}
    if hosts[index] not in nodes:
        raise ClusterError(f"hosts: there is no node {hosts[index]}; accepted: {', '.join(sorted(nodes))}")
    strategy = need("ray.util.scheduling_strategies").NodeAffinitySchedulingStrategy(nodes[hosts[index]], soft=False)
    return {"scheduling_strategy": strategy}


class Generator:
    """An actor of Ray that runs one load generator."""

    def ready(self) -> bool:
        """Returns True as soon as the actor runs."""
        return True

    def run(self, address: str, index: int, of: int, options: dict[str, Any]) -> bytes:
        """Runs the generator: see `generate`."""
        return generate(address, index, of, options)
