"""Compares the time of the Python engines with that of `leeward run --sweep`, for the same runs.

Each does 200 runs (20 times SEEDS) of bw-overall --quick, on one worker and on two. The script also
checks that all engines return the same bytes. Times are wall seconds: the machine must be idle.

    LEEWARD=target/release/leeward python python/bench/overhead.py [SEEDS [threads processes ray]]
"""

import os
import subprocess
import sys
import time

import leeward as lw

SCENARIO = "bw-overall"
GRID = {"controller": ["breakwater", "dagor", "seda", "none"], "demand": [0.6, 0.9, 1.2, 1.6, 2.0]}
SEEDS = int(sys.argv[1]) if len(sys.argv) > 1 else 10


def timed(call):
    """Returns the wall seconds of `call`, and its result."""
    began = time.perf_counter()
    answer = call()
    return time.perf_counter() - began, answer


def program(threads: int) -> float:
    """Returns the wall seconds of the program for these runs, with its start."""
    axes = [f"--sweep=controller={','.join(GRID['controller'])}", f"--sweep=demand={','.join(f'{one}x' for one in GRID['demand'])}"]
    command = [os.environ["LEEWARD"], "run", SCENARIO, "--quick", *axes, "--set", f"run.seeds={SEEDS}", "--threads", str(threads)]
    return timed(lambda: subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))[0]


def sweep(on: str, workers: int):
    """Returns the wall seconds of a sweep on an engine, and its rows."""
    scenario = lw.scenario(SCENARIO).quick()
    return timed(lambda: lw.sweep(scenario, GRID, seeds=SEEDS, on=on, workers=workers, progress=False))


def main() -> None:
    engines = sys.argv[2:] or ["threads", "processes", "ray"]
    base = {threads: program(threads) for threads in (2, 1)}
    print(f"program: {base[2]:.2f} s on 2 threads, {base[1]:.2f} s on 1: {base[1] / base[2]:.2f} x")
    rows = set()
    for on in engines:
        began = 0.0
        if on == "ray":
            import ray

            ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
        if on != "threads":
            # Workers start with the first task. A tiny sweep measures this start.
            grid = {"controller": ["none"], "demand": [0.1]}
            tiny = lw.scenario(SCENARIO).quick().set({"run.duration": "2ms", "run.warmup": "1ms"})
            began = timed(lambda: lw.sweep(tiny, grid, seeds=16, on=on, workers=2, progress=False))[0]
        two, swept = sweep(on, 2)
        rows.add(swept.to_bytes())
        if on == "processes":
            two -= began  # each sweep starts its processes anew
        line = f"{on}: {two:.2f} s on 2 workers, {two / base[2] - 1:+.1%} beside the program"
        if on != "ray":
            one, swept = sweep(on, 1)
            rows.add(swept.to_bytes())
            one -= began if on == "processes" else 0.0
            line += f"; {one:.2f} s on 1: {one / two:.2f} x"
        print(f"{line} (start {began:.1f} s)")
    print("all rows are the same bytes" if len(rows) == 1 else f"ROWS DIFFER: {len(rows)} kinds")


if __name__ == "__main__":
    main()
