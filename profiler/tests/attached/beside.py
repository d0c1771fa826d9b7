"""What `perf` and bpftrace say of the same fault: the place of the culprit in their lists.

`perf` samples the CPU; bpftrace sums up the time away from it by stack, as BCC's `offcputime` does,
whose kprobes are not everywhere. Each records a run of its own, so that none slows another. Does
not judge our own answer.
"""
import os
import re
import shutil
import signal
import subprocess
import time

import trial
from process import end, start
from recording import Failed
from services import Skipped

# The user's stack at each switch away, and the time until the thread runs again.
OFF_CPU = """
tracepoint:sched:sched_switch /pid == $1/ { @since[tid] = nsecs; @at[tid] = ustack(64); }
tracepoint:sched:sched_switch /@since[args->next_pid]/ {
    @off[@at[args->next_pid]] = sum(nsecs - @since[args->next_pid]);
    delete(@since[args->next_pid]); delete(@at[args->next_pid]);
}
END { clear(@since); clear(@at); }
"""
# Tracefs may not be mounted; bpftrace then gets one of its own.
OWN_TRACEFS = 'mount -t tracefs tracefs /sys/kernel/tracing 2>/dev/null; exec "$@"'
# What a person looks at.
SHOWN = 30


def tools():
    """Raises `Skipped` where one of the programs is missing."""
    for program in ("perf", "bpftrace"):
        if not shutil.which(program):
            raise Skipped(f"{program} is not installed (Debian: linux-perf, bpftrace)")


def driven(service, fault, requests, slow, command, log):
    """Asks all requests while `command(pid)` runs; it ends as by Ctrl-C."""
    connection = service.connect()
    try:
        for turn in range(200):
            trial.ordinary(service, connection, turn)
        with open(log, "wb") as output:
            process = start(command(service.recorded(connection)), limit=600, stdout=output, stderr=subprocess.STDOUT)
        try:
            time.sleep(3)
            if process.poll() is not None:
                raise Failed(log.read_text(errors="replace").strip()[-300:])
            trial.drive(service, fault, connection, requests, slow)
            os.kill(process.pid, signal.SIGINT)
            process.wait(120)
        finally:
            end(process)
    finally:
        connection.close()


def sampled(service, fault, folder, requests, slow):
    """Lists of (function, share in per cent) by own time, and with what they call."""
    data = folder / "perf.data"
    driven(service, fault, requests, slow, lambda pid: ["perf", "record", "-q", "-F", "999", "--call-graph", "dwarf",
                                                             "-p", str(pid), "-o", data], folder / "perf.log")
    lists = []
    for children in ("--no-children", "--children"):
        done = subprocess.run(["perf", "report", "-i", data, "--stdio", "-g", "none", "--sort", "symbol", children],
                              capture_output=True, text=True, timeout=300, check=False)
        rows = re.findall(r"^ *([\d.]+)%(?: +[\d.]+%)? +\[[.k]\] (.+?)(?:  .*)?$", done.stdout, re.M)
        lists.append([(name, float(share)) for share, name in rows])
    return lists


def off_cpu(service, fault, folder, requests, slow):
    """List of (stack's functions, share in per cent) by time away from the CPU."""
    log = folder / "bpftrace.log"
    driven(service, fault, requests, slow,
           lambda pid: ["unshare", "-m", "sh", "-c", OWN_TRACEFS, "sh", "bpftrace", "-e", OFF_CPU, str(pid)], log)
    stacks = {}
    for stack, nanos in re.findall(r"^@off\[(.*?)^\]: (\d+)$", log.read_text(errors="replace"), re.M | re.S):
        names = tuple(re.sub(r"\+\d+$", "", frame.strip()) for frame in stack.splitlines() if frame.strip())
        stacks[names] = stacks.get(names, 0) + int(nanos)
    total = sum(stacks.values()) or 1
    return sorted(((names, 100 * nanos / total) for names, nanos in stacks.items()), key=lambda one: -one[1])


def place(rows, is_meant):
    """The first row, from 1, of those that a person looks at; none."""
    return next((at for at, (name, _) in enumerate(rows[:SHOWN], 1) if is_meant(name)), None)


def examine(service, fault, folder, requests, slow):
    """Returns what both tools put first, and the places of the culprit."""
    tools()
    folder.mkdir(parents=True, exist_ok=True)
    own, with_calls = sampled(service, fault, folder, requests, slow)
    stacks = off_cpu(service, fault, folder, requests, slow)
    is_meant = lambda name: trial.is_right(fault, service, name, [])  # noqa: E731
    return {
        "perf": own[:5], "perf_place": place(own, is_meant), "perf_calls": with_calls[:5],
        "perf_calls_place": place(with_calls, is_meant), "off": stacks[:3],
        "off_place": place(stacks, lambda names: any(is_meant(name) for name in names)),
    }
