"""Starts load.py in a process of its own and reads what it wrote."""
import json
import pathlib
import signal
import sys

from process import end, start

LOAD = str(pathlib.Path(__file__).resolve().parent / "load.py")


GRACE_SECONDS = 20  # between the end of the load, or the signal, and the end of its process


class Client:
    """A running load.py; `finish` or `stop` ends it."""

    def __init__(self, folder, name, port, rate, **options):
        self.out = folder / f"load-{name}.jsonl"
        command = [sys.executable, LOAD, "--port", str(port), "--rate", str(rate),
                   "--out", str(self.out)]
        for key, value in options.items():
            command += ["--" + key.replace("_", "-"), str(value)]
        # The client runs at a higher priority, so that its latencies exclude its own wait for a
        # CPU.
        self.process = start(command, limit=options.get("seconds", 60) + 30, nice=-10)

    def stop(self):
        """Ends the load now; returns what `finish` does."""
        self.process.send_signal(signal.SIGTERM)
        return self.finish(0)

    def finish(self, seconds):
        """Waits for the end of the load in `seconds`; returns its requests as (due, sent, done) and
        the time of its end. The process is gone after it, also if it did not end in time."""
        try:
            self.process.wait(seconds + GRACE_SECONDS)
        finally:
            end(self.process)
        last = json.loads(self.out.read_text(encoding="utf-8").splitlines()[-1])
        return last["requests"], last["end"]


def latencies(requests, end_time, first, last):
    """Milliseconds from the due time, sorted, of the requests due in [first, last]. One without
    answer counts with its age so far, which is less than its latency will be."""
    return sorted(1e3 * ((done or end_time) - due) for due, _, done in requests
                  if first <= due <= last)


def share(times, part):
    """Percentile of sorted latencies; `part` is 0 to 1. None without latencies."""
    return times[min(len(times) - 1, int(part * len(times)))] if times else None


def baseline(folder, port, rate, warm=1.0, seconds=2.0):
    """p50 and p90 in ms before the fault. The first second is discarded as warm-up."""
    client = Client(folder, "baseline", port, rate, seconds=warm + seconds, connections=2)
    requests, stop = client.finish(warm + seconds)
    times = latencies(requests, stop, stop - seconds, stop)
    return share(times, 0.5), share(times, 0.9)
