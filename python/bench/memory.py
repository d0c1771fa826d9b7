"""Measures the peak memory of the process for a sweep of 100,000 short runs into a data set.

    python python/bench/memory.py [RUNS]
"""

import resource
import sys
import tempfile
import time
from pathlib import Path

import leeward as lw


def main() -> None:
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 100_000
    scenario = lw.scenario("bw-overall").quick().set({"workload.clients": 2, "run.duration": "400us", "run.warmup": "200us"})
    grid = {"controller": ["breakwater", "none"], "demand": [0.5, 2.0]}
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        swept = lw.sweep(scenario, grid, seeds=runs // 4, on="threads", workers=2, out=Path(folder) / "set", progress=False)
        largest = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10
        files = len(swept.dataset.files)
        print(f"{runs} runs in {time.perf_counter() - began:.0f} s, {files} files; the process had {largest:.0f} MB at most")
        table = swept.table()
        print(f"{len(table)} rows read; {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10:.0f} MB with all rows in memory")


if __name__ == "__main__":
    main()
