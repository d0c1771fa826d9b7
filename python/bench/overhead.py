"""What Python and its engines cost beside the program: the same 200 runs (20 times SEEDS) of bw-overall --quick by `leeward run --sweep` and by every
engine, on one worker and on two, and whether all rows are the same bytes. Wall seconds of a machine that does nothing else.

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
    """Wall seconds of a call, and its answer."""
    began = time.perf_counter()
    answer = call()
    return time.perf_counter() - began, answer


def program(threads: int) -> float:
    """The program's time for the same runs, its start included."""
    axes = [f"--sweep=controller={','.join(GRID['controller'])}", f"--sweep=demand={','.join(f'{one}x' for one in GRID['demand'])}"]
    command = [os.environ["LEEWARD"], "run", SCENARIO, "--quick", *axes, "--set", f"run.seeds={SEEDS}", "--threads", str(threads)]
    return timed(lambda: subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))[0]


def sweep(on: str, workers: int):
    """The wall time of an engine that has started, and the rows."""
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
            # Workers start with the first task: an engine's start is not its overhead.
            grid = {"controller": ["none"], "demand": [0.1]}
            tiny = lw.scenario(SCENARIO).quick().set({"run.duration": "2ms", "run.warmup": "1ms"})
            began = timed(lambda: lw.sweep(tiny, grid, seeds=16, on=on, workers=2, progress=False))[0]
        two, swept = sweep(on, 2)
        rows.add(swept.to_bytes())
        if on == "processes":
            two -= began  # each sweep has processes of its own
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
