"""`examine cost`: CPU time of `PROGRAM watch ADDRESS --json`, 2,000 connections, light traffic."""
import json
import pathlib
import time

from client import Client
from process import end_all
from service import start_service
from stream import Stream

CONNECTIONS, RATE, SECONDS, BAR = 2000, 200, 20.0, 1.0


def measure(server, options, machine, programs):
    """CPU time of the program beside one service."""
    _, port = start_service(programs.command(server), "plain", {"COST_MS": 0.1},
                            machine.folder / "service.err")
    try:
        client = Client(machine.folder, "cost", port, RATE, connections=CONNECTIONS,
                        seconds=SECONDS + 40)
        time.sleep(3)
        stream = Stream(options.leeward, port, SECONDS + 30)
        time.sleep(1)
        # The start counts: its first second is in the CPU time, not in the interval below.
        start_cpu = stream.cpu_seconds() if stream.alive() else 0
        first = time.monotonic()
        while stream.alive() and time.monotonic() < first + SECONDS:
            time.sleep(0.1)
        took = time.monotonic() - first
        if not stream.alive():
            error = stream.process.stderr.read().decode(errors="replace").strip()[-200:]
            return {"server": server, "passed": False, "error": error or "it ended by itself"}
        used = stream.cpu_seconds()
        samples = stream.finish()
        client.stop()
    finally:
        end_all()
    percent = 100 * (used - start_cpu) / took
    return {"server": server, "connections": CONNECTIONS, "seconds": took, "samples": len(samples),
            "start_cpu_ms": 1e3 * start_cpu, "cpu_percent": percent,
            "passed": percent <= BAR and bool(samples)}


def examine(options, machine, programs):
    """Measures beside each service and prints a row for each; returns the exit status."""
    results = []
    for server in ("c/pool", "go"):
        result = measure(server, options, machine, programs)
        results.append(result)
        if "error" in result:
            print(f"{server:8} no measurement: {result['error']}", flush=True)
            continue
        print(f"{server:8} {CONNECTIONS} connections: {result['cpu_percent']:.2f} % of a CPU over "
              f"{result['seconds']:.0f} s (first second: {result['start_cpu_ms']:.0f} ms), "
              f"{result['samples']} samples: {'ok' if result['passed'] else 'beyond the bar'}",
              flush=True)
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps(results, indent=1) + "\n",
                                              encoding="utf-8")
    return 0 if all(result["passed"] for result in results) else 1
