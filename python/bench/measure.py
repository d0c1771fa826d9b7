"""Measures the package's costs: rows to a frame, decisions in Python, a slow half beside Rust's.

The costs are CPU seconds of this process: other programs on the machine change them little.

    python python/bench/measure.py
"""

import time

import leeward as lw


class EveryRequest(lw.Controller):
    """Rejects from a queueing delay of 80 µs, by a call for each request."""

    def request(self, arrival):
        return arrival.delay_us < 80.0


class SlowLaw(lw.Controller):
    """Breakwater's pool law (§3.2.1)."""

    params = {"target": "80us"}

    def pool(self, signals, pool):
        if signals.delay_us < self.target:
            return pool.total + max(1.0, 0.001 * pool.sessions)
        return pool.total * max(0.5, 1 - 0.02 * (signals.delay_us - self.target) / self.target)


def spent(call):
    """Returns the CPU seconds and wall seconds of `call`, and its result."""
    cpu, wall = time.process_time(), time.perf_counter()
    answer = call()
    return time.process_time() - cpu, time.perf_counter() - wall, answer


def main() -> None:
    base = lw.scenario("bw-overall").quick().set({"workload.demand": [2.0], "run.warmup": "100ms", "run.duration": "300ms"})
    rust = min(spent(lambda: base.controllers("breakwater").run(seeds=1, threads=1))[0] for _ in range(3))
    law = min(spent(lambda: base.controllers(SlowLaw).run(seeds=1, threads=1))[0] for _ in range(3))
    print(f"slow half: {rust:.3f} s in Rust, {law:.3f} s in Python: {rust / law:.2f} of its speed")
    cpu, wall, results = spent(lambda: base.controllers(EveryRequest).run(seeds=1))
    decisions = 1_700_000 * 0.3
    print(f"per request: about {decisions / cpu / 1000:.0f} thousand decisions per CPU second ({cpu:.2f} s CPU, {wall:.2f} s)")
    one = results.table()
    rows = one
    while len(rows) < 1_000_000:
        rows = lw.Table.concat([rows] * 10)
    import polars

    polars.DataFrame(one)
    for _ in range(3):
        cpu, wall, frame = spent(lambda: polars.DataFrame(rows))
        print(f"{len(frame)} rows, {len(frame.columns)} columns into polars: {wall * 1000:.0f} ms, {cpu * 1000:.0f} ms of CPU")


main()
