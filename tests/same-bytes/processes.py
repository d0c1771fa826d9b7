"""Runs programs and servers: with timeouts, without a shell, and ended in all cases."""

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
    """The comparison can't be made: a bad use, or a revision that does not build or start."""


def environment(home):
    """The same for both sides, whatever terminal, language or configuration the user has."""
    kept = {name: os.environ[name] for name in ("PATH", "CARGO_HOME", "RUSTUP_HOME") if name in os.environ}
    # Nor does a profiler's plugin that stands beside one of the programs alone.
    kept["LEEWARD_PROFILER_DIR"] = str(home / "no-profiler")
    return {**kept, "HOME": str(home), "LANG": "C.UTF-8", "TERM": "dumb", "NO_COLOR": "1", "COLUMNS": "100"}


def dies_with_parent():
    LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def end(process, patience=5):
    """Ends a process with all that it has started."""
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
    """What a program printed, and how it ended; a program that takes too long has no code."""

    def __init__(self, arguments, code, out, err):
        self.arguments, self.code, self.out, self.err = arguments, code, out, err

    def text(self):
        how = "exit code " + str(self.code) if self.code is not None else "killed: it took too long"
        shown = " ".join(str(argument) for argument in self.arguments)
        return b"$ leeward %s\n%s\n--- stdout\n%s\n--- stderr\n%s\n" % (shown.encode(), how.encode(), self.out, self.err)


def run(command, folder, env, timeout):
    """Runs a program to its end; `command` is a list of words."""
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
    """A running `leeward serve`, which has chosen its ports itself and printed them."""

    def __init__(self, process, folder):
        self.process, self.folder = process, folder

    def printed(self):
        return (self.folder / "serve.out").read_text("utf-8", "replace")

    def address(self, pattern, patience=60):
        """Host and port behind what `pattern` matches in what the server prints."""
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
    """A server for as long as the block runs; it is asked to end, and made to when it does not."""
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / "serve.out", "wb") as out, open(folder / "serve.err", "wb") as err:
        process = subprocess.Popen(
            [str(word) for word in command], cwd=folder, env=env, stdin=subprocess.DEVNULL, stdout=out, stderr=err,
            start_new_session=True, preexec_fn=dies_with_parent)
        try:
            yield Server(process, folder)
        finally:
            end(process, patience)
