"""A recording by `leeward profile record --pid`, and the answers about it.

Does not know services or faults.
"""
import json
import os
import pathlib
import shutil
import signal
import subprocess
import time

from process import end, start, wait_until

LIMIT_SECONDS = 1800
# The recorder has seen its first samples by then.
SETTLE_SECONDS = 1.0


class Failed(Exception):
    """The recorder or a reader failed; the text is its last words."""


class Recording:
    """Records a process until `stop`. `out` gets the traces, a folder per process."""

    def __init__(self, leeward, pid, out, *more):
        shutil.rmtree(out, ignore_errors=True)
        out.mkdir(parents=True)
        self.out, self.log = out, out.with_suffix(".log")
        self.leeward, self.recorded = leeward, pid
        with open(self.log, "wb") as log:
            self.process = start([leeward, "profile", "record", "--pid", str(pid), "--out", str(out), *more],
                                 limit=LIMIT_SECONDS, stdout=log, stderr=log)
        if not wait_until(lambda: self.process.poll() is not None or self.traces(), 20) or self.process.poll() is not None:
            end(self.process)
            raise Failed(f"it does not record: {self.said()}")
        time.sleep(SETTLE_SECONDS)

    def traces(self):
        return sorted(path.parent for path in self.out.glob("*/*.lwt"))

    def said(self):
        return self.log.read_text(errors="replace").strip()[-800:]

    def memory(self):
        """Resident bytes of the recorder."""
        pages = int(pathlib.Path(f"/proc/{self.process.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")

    def disk(self):
        """Bytes of the traces; segments may be deleted meanwhile."""
        total = 0
        for path in self.out.rglob("*"):
            try:
                total += path.stat().st_size
            except OSError:
                pass
        return total

    def stop(self):
        """Ends as Ctrl-C does; returns the recorded process's trace."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            raise Failed("Ctrl-C does not end it within a minute") from None
        finally:
            end(self.process)
        if self.process.returncode not in (0, 128 + signal.SIGINT):
            raise Failed(f"it ends with {self.process.returncode}: {self.said()}")
        trace = self.out / str(self.recorded)
        if trace not in self.traces():
            raise Failed(f"it left no trace of process {self.recorded}: {self.said()}")
        return trace

    def kill(self):
        self.process.kill()
        self.process.wait(10)
        end(self.process)


def ask(leeward, *words):
    """The JSON that a command of `leeward profile` prints."""
    done = subprocess.run([leeward, "profile", *map(str, words), "--json"], capture_output=True, text=True,
                          timeout=300, check=False)
    if done.returncode:
        raise Failed(f"profile {words[0]}: {done.stderr.strip()[-500:]}")
    return json.loads(done.stdout)


def text(leeward, *words):
    """What a command of `leeward profile` prints for people."""
    done = subprocess.run([leeward, "profile", *map(str, words)], capture_output=True, text=True, timeout=300,
                          check=False)
    return done.stdout + done.stderr
