"""What recording costs: a closed-loop load, in turns with and without the recorder.

Does not judge what the recorder found.
"""
import statistics
import subprocess

from clients import Postgres
from faults import ordinary_bytes
from process import cpu_seconds, end, start
from recording import Recording

LIMIT_SECONDS = 1800


class Load:
    """The program `load`, connected; it runs when it is asked to."""

    def __init__(self, program, service, connections, cpu=None):
        request, greeting = ordinary_bytes(service)
        (service.folder / "request").write_bytes(request)
        (service.folder / "greeting").write_bytes(greeting)
        on = ["taskset", "-c", str(cpu)] if cpu is not None else []
        self.process = start([*on, str(program), str(service.port), str(connections),
                              str(service.folder / "request"), str(service.folder / "greeting")],
                             limit=LIMIT_SECONDS, stdout=subprocess.PIPE, stdin=subprocess.PIPE, text=True)
        self.port = int(self.line()[1])

    def line(self):
        words = self.process.stdout.readline().split()
        if not words:
            raise OSError("the load failed")
        return words

    def run(self, seconds):
        """Requests per second."""
        self.process.stdin.write(f"{seconds}\n")
        self.process.stdin.flush()
        words = self.line()
        return int(words[0]) / float(words[1])

    def stop(self):
        end(self.process)


def measure(leeward, service, program, folder, turns, seconds, more=()):
    """The ratio of throughput with recorder to that without, as medians over turns."""
    own_process = service.name == "postgres"
    load = Load(program, service, 1 if own_process else 8, cpu=1)
    try:
        pid = service.pid
        if own_process:
            asking = Postgres(service.port)
            pid = int(asking.ask(f"SELECT pid FROM pg_stat_activity WHERE client_port = {load.port}")[0])
            asking.close()
        load.run(1)
        rows = []
        for turn in range(turns):
            without = busy(load, pid, seconds)
            recording = Recording(leeward, pid, folder / f"cost-{turn}", *more)
            with_it = busy(load, pid, seconds)
            recorder = cpu_seconds(recording.process.pid) / (seconds + 1)
            recording.stop()
            rows.append({"without": without, "with": with_it, "recorder_cpus": recorder})
    finally:
        load.stop()
    ratios = sorted(row["with"][0] / row["without"][0] for row in rows)
    cpu = sorted(row["with"][1] / row["without"][1] for row in rows)
    return {"ratio": statistics.median(ratios), "ratios": ratios, "cpu_per_request": statistics.median(cpu),
            "rate": statistics.median(row["without"][0] for row in rows),
            "recorder_cpus": statistics.median(row["recorder_cpus"] for row in rows)}


def busy(load, pid, seconds):
    """(requests per second, CPU seconds of the service per request)."""
    before = cpu_seconds(pid)
    rate = load.run(seconds)
    return rate, max(cpu_seconds(pid) - before, 0.01) / (rate * seconds)
