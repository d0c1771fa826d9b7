"""Runs programs and servers, with timeouts and without a shell. No process outlives its call."""

import ctypes
import os
import re
import signal
import subprocess
import time
from contextlib import contextmanager

PR_SET_PDEATHSIG = 1
LIBC = ctypes.CDLL(None, use_errno=True)


class Unusable(Exception):
    """The comparison is impossible: wrong arguments, or a revision that does not build or start."""


def environment(home):
    """Environment variables of both sides, independent of the user's terminal and configuration."""
    kept = {name: os.environ[name] for name in ("PATH", "CARGO_HOME", "RUSTUP_HOME") if name in os.environ}
    # Hides a profiler's plugin, which only one of the programs may have in its folder.
    kept["LEEWARD_PROFILER_DIR"] = str(home / "no-profiler")
    return {**kept, "HOME": str(home), "LANG": "C.UTF-8", "TERM": "dumb", "NO_COLOR": "1", "COLUMNS": "100"}


def dies_with_parent():
    LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def end(process, patience=5):
    """Ends a process and its children: by SIGTERM, and by SIGKILL after `patience` seconds."""
    for sent in (signal.SIGTERM, signal.SIGKILL):
        if process.poll() is None:
            try:
                os.killpg(process.pid, sent)
                process.wait(patience)
            except (ProcessLookupError, subprocess.TimeoutExpired):
                pass
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    process.wait()


class Ended:
    """Output and exit code of a program; the code is None if it exceeded its time limit."""

    def __init__(self, arguments, code, out, err):
        self.arguments, self.code, self.out, self.err = arguments, code, out, err

    def text(self):
        how = "exit code " + str(self.code) if self.code is not None else "killed: it took too long"
        shown = " ".join(str(argument) for argument in self.arguments)
        return b"$ leeward %s\n%s\n--- stdout\n%s\n--- stderr\n%s\n" % (shown.encode(), how.encode(), self.out, self.err)


def run(command, folder, env, timeout):
    """Runs a program to its end, for at most `timeout` seconds; `command` is a list of words."""
    process = subprocess.Popen(
        [str(word) for word in command], cwd=folder, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, start_new_session=True, preexec_fn=dies_with_parent)
    try:
        out, err = process.communicate(timeout=timeout)
        return Ended(command[1:], process.returncode, out, err)
    except subprocess.TimeoutExpired:
        return Ended(command[1:], None, b"", b"")
    finally:
        end(process)
        process.stdout.close()
        process.stderr.close()


class Server:
    """A running `leeward serve`, which chooses its ports and prints them."""

    def __init__(self, process, folder):
        self.process, self.folder = process, folder

    def printed(self):
        return (self.folder / "serve.out").read_text("utf-8", "replace")

    def address(self, pattern, patience=60):
        """Host and port that follow `pattern` in the server's output; waits for them."""
        until = time.monotonic() + patience
        while True:
            found = re.search(pattern + r"(\d+\.\d+\.\d+\.\d+):(\d+)[^\d]", self.printed())
            if found:
                return found[1], int(found[2])
            if self.process.poll() is not None or time.monotonic() > until:
                said = self.printed() + (self.folder / "serve.err").read_text("utf-8", "replace")
                raise Unusable(f"leeward serve does not start:\n{said}")
            time.sleep(0.01)

    def main(self):
        return self.address(r"serving [^\n]* on ")

    def memcached(self):
        return self.address(r"memcached's clients: ")

    def admin(self):
        return self.address(r"admin: http://")


@contextmanager
def serving(command, folder, env, patience=10):
    """Runs a server during the block, and then ends it: see `end`."""
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / "serve.out", "wb") as out, open(folder / "serve.err", "wb") as err:
        process = subprocess.Popen(
            [str(word) for word in command], cwd=folder, env=env, stdin=subprocess.DEVNULL, stdout=out, stderr=err,
            start_new_session=True, preexec_fn=dies_with_parent)
        try:
            yield Server(process, folder)
        finally:
            end(process, patience)
