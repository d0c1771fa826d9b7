"""Runs `PROGRAM watch ADDRESS --json`, one object per interval, and keeps what it prints."""
import json
import subprocess
import threading
import time

from process import cpu_seconds, end, start


class Stream:
    """A running `PROGRAM watch`; `finish` ends it."""

    def __init__(self, program, port, limit):
        self.port = port
        self.samples = []   # (monotonic time at which the line was here, this listener's object)
        self.process = start([program, "watch", f"127.0.0.1:{port}", "--json"], limit=limit,
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()

    def read(self):
        """Collects the samples of this listener until the program ends."""
        for line in self.process.stdout:
            now = time.monotonic()
            try:
                listeners = json.loads(line)["listeners"]
            except (ValueError, KeyError, TypeError):
                continue
            for one in listeners:
                if str(one.get("address", "")).endswith(f":{self.port}"):
                    self.samples.append((now, one))

    def alive(self):
        """True while the program runs."""
        return self.process.poll() is None

    def cpu_seconds(self):
        """CPU time of the program so far."""
        return cpu_seconds(self.process.pid)

    def finish(self):
        """Ends the program; returns the samples."""
        end(self.process)
        self.reader.join(5)
        return self.samples
