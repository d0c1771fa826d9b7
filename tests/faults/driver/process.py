"""Starts processes that end with the driver or at a time limit, and reads their /proc files."""
import ctypes
import os
import pathlib
import signal
import subprocess
import threading
import time

LIBC = ctypes.CDLL(None, use_errno=True)
RUNNING = []


def start(command, *, limit, group=None, nice=0, **options):
    """Starts a command in a session of its own. It is killed after `limit` seconds, and with the
    driver however that ends. `group`: a cgroup to start in. `nice`: the nice value of its
    session (autogroup) among all others; its threads keep theirs."""
    def before():
        LIBC.prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
        for folder in [group] if group else []:
            with open(folder / "cgroup.procs", "w", encoding="ascii") as file:
                file.write(str(os.getpid()))
        if nice:
            try:
                with open("/proc/self/autogroup", "w", encoding="ascii") as file:
                    file.write(str(nice))
            except OSError:
                pass  # without autogroups or rights it competes as all others do

    options.setdefault("stdout", subprocess.DEVNULL)
    options.setdefault("stdin", subprocess.DEVNULL)
    process = subprocess.Popen(command, preexec_fn=before, start_new_session=True, **options)
    process.timer = threading.Timer(limit, end, [process])
    process.timer.daemon = True
    process.timer.start()
    RUNNING.append(process)
    return process


def end(process):
    """Kills the process's session (also one that is stopped) and waits for it."""
    process.timer.cancel()
    if process.poll() is None:
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        pass
    if process in RUNNING:
        RUNNING.remove(process)


def end_all():
    """Kills all processes, the last one first: clients, the service, its backend."""
    for process in reversed(RUNNING[:]):
        end(process)


def read(path):
    """Text of a file without white space around it; None if it cannot be read."""
    try:
        return pathlib.Path(path).read_text(errors="replace").strip()
    except OSError:
        return None


def stat(folder):
    """(name, fields from the state on) of a process or thread, from `stat` in its folder of /proc;
    None if it has ended."""
    name, bracket, fields = (read(f"{folder}/stat") or "").rpartition(")")
    return (name.split("(", 1)[1], fields.split()) if bracket else None


def cpu_seconds(pid):
    """User and system time so far of a process and of its children that ended.

    Raises ProcessLookupError if the process has ended."""
    found = stat(f"/proc/{pid}")
    if found is None:
        raise ProcessLookupError(f"process {pid} has ended")
    return sum(int(field) for field in found[1][11:15]) / os.sysconf("SC_CLK_TCK")


def busy_seconds():
    """Time that all CPUs of the machine were not idle, so far."""
    with open("/proc/stat", encoding="utf-8") as file:
        fields = [int(field) for field in file.readline().split()[1:9]]
    return (sum(fields) - fields[3] - fields[4]) / os.sysconf("SC_CLK_TCK")


def wait_until(what, seconds):
    """Calls `what` until it returns true; False if it did not within `seconds`."""
    end_time = time.monotonic() + seconds
    while time.monotonic() < end_time:
        if what():
            return True
        time.sleep(0.02)
    return False
