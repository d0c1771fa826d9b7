"""Starts load.py in a process of its own and reads what it wrote."""
import json
import pathlib
import signal
import sys

from process import end, start

LOAD = str(pathlib.Path(__file__).resolve().parent / "load.py")


class Client:
    def __init__(self, folder, name, port, rate, **options):
        self.out = folder / f"load-{name}.jsonl"
        command = [sys.executable, LOAD, "--port", str(port), "--rate", str(rate),
                   "--out", str(self.out)]
        for key, value in options.items():
            command += ["--" + key.replace("_", "-"), str(value)]
        # The client's clock is the examination's: it does not queue behind the service.
        self.process = start(command, limit=options.get("seconds", 60) + 30, favour=-10)

    def finish(self, after=0):
        """Waits (or ends it) and returns its requests as (due, sent, done) and its end."""
        if after == 0:
            self.process.send_signal(signal.SIGTERM)
        self.process.wait(after + 20)
        end(self.process)
        last = json.loads(self.out.read_text(encoding="utf-8").splitlines()[-1])
        return last["requests"], last["end"]


def latencies(requests, end_time, first, last):
    """Milliseconds from the due time, sorted, of the requests due in [first, last]. One without
    answer counts with its age so far, which is less than its latency will be."""
    return sorted(1e3 * ((done or end_time) - due) for due, _, done in requests
                  if first <= due <= last)


def share(times, part):
    return times[min(len(times) - 1, int(part * len(times)))] if times else None


def calm(folder, port, rate, warm=1.0, seconds=2.0):
    """p50 and p90 in ms before the fault; the first second is the run-times' to warm up in."""
    client = Client(folder, "calm", port, rate, seconds=warm + seconds, connections=2)
    requests, stop = client.finish(warm + seconds)
    times = latencies(requests, stop, stop - seconds, stop)
    return share(times, 0.5), share(times, 0.9)
