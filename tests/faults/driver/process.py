"""Processes that end: with their driver, at their limit of time, or when they are told to."""
import ctypes
import os
import signal
import subprocess
import threading
import time

LIBC = ctypes.CDLL(None, use_errno=True)
RUNNING = []


def start(command, *, limit, group=None, favour=0, **options):
    """Starts a command in a session of its own. It is killed after `limit` seconds, and with the
    driver however that ends. `group`: a cgroup to start in. `favour`: the nice value of its
    session (autogroup) among all others; its threads keep theirs."""
    def before():
        LIBC.prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
        for folder in [group] if group else []:
            with open(folder / "cgroup.procs", "w", encoding="ascii") as file:
                file.write(str(os.getpid()))
        if favour:
            try:
                with open("/proc/self/autogroup", "w", encoding="ascii") as file:
                    file.write(str(favour))
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
    """The last one first: clients, then the service, then its backend."""
    for process in reversed(RUNNING[:]):
        end(process)


def cpu_seconds(pid):
    """User and system time so far of a process and of its children that ended."""
    with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
        fields = file.read().rsplit(")", 1)[1].split()
    return sum(int(field) for field in fields[11:15]) / os.sysconf("SC_CLK_TCK")


def busy_seconds():
    """Time that all CPUs of the machine were not idle, so far."""
    with open("/proc/stat", encoding="utf-8") as file:
        fields = [int(field) for field in file.readline().split()[1:9]]
    return (sum(fields) - fields[3] - fields[4]) / os.sysconf("SC_CLK_TCK")


def wait_until(what, seconds):
    end_time = time.monotonic() + seconds
    while time.monotonic() < end_time:
        if what():
            return True
        time.sleep(0.02)
    return False
