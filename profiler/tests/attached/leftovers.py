"""What a recorder that was killed leaves behind: nothing of it may remain.

Does not judge recordings that ended well.
"""
import os
import pathlib
import subprocess
import time

from faults import ordinary
from recording import Recording

# Shown in a mount namespace of our own: the machine may have no tracefs mounted.
TRACING = """
mount -t tracefs nodev "$1" 2>/dev/null || exit 9
cat "$1/uprobe_events" "$1/kprobe_events" 2>/dev/null
ls "$1/instances"
grep -r -l -s '^1' "$1"/events/*/*/enable
"""


def tracing(folder):
    """Lines about probes, instances and enabled events in tracefs."""
    folder.mkdir(exist_ok=True)
    done = subprocess.run(["unshare", "--mount", "--propagation", "private", "sh", "-c", TRACING, "sh", folder],
                          capture_output=True, text=True, timeout=60, check=False)
    if done.returncode == 9:
        raise OSError("tracefs can't be mounted")
    return done.stdout.splitlines()


def facts(pid, folder):
    """All that must be as before: name -> value."""
    return {
        "probes, instances and enabled events": tracing(folder),
        "mounts": pathlib.Path("/proc/self/mounts").read_text().splitlines(),
        "BPF programs": bpf_programs(),
        "breakpoints in the code": changed_code(pid),
        "tracer": [line for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines() if "TracerPid" in line],
        "recorders": recorders(pid),
    }


def bpf_programs():
    """Open BPF programs, maps and links, and perf events, of all processes."""
    found = []
    for entry in pathlib.Path("/proc").glob("[0-9]*/fd/*"):
        try:
            target = os.readlink(entry)
        except OSError:
            continue
        if target.startswith(("anon_inode:bpf", "anon_inode:[perf_event]")):
            found.append(f"{entry.parent.parent.name} {target}")
    return sorted(found)


def changed_code(pid):
    """Addresses of code in memory that differs from its file: a uprobe is a breakpoint in it."""
    found = []
    with open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:
        for line in pathlib.Path(f"/proc/{pid}/maps").read_text().splitlines():
            words = line.split()
            if "x" not in words[1] or len(words) < 6 or not words[5].startswith("/"):
                continue
            begin, finish = (int(part, 16) for part in words[0].split("-"))
            with open(f"/proc/{pid}/map_files/{begin:x}-{finish:x}", "rb") as file:
                file.seek(int(words[2], 16))
                there = file.read(finish - begin)
            memory.seek(begin)
            here = memory.read(finish - begin)[:len(there)]
            if here != there:
                found.append(next(f"{words[5]}+{at:#x}" for at in range(len(here)) if here[at] != there[at]))
    return found


def recorders(pid):
    """Processes whose command line records this one."""
    found = []
    for entry in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = entry.read_bytes().split(b"\0")
        except OSError:
            continue
        if b"profile" in words and b"--pid" in words and str(pid).encode() in words:
            found.append(entry.parent.name)
    return found


def examine(leeward, service, folder):
    """Kills a recorder in the middle of its work; returns what is left behind."""
    connection = service.connect()
    try:
        pid = service.recorded(connection)
        before = facts(pid, folder / "tracefs")
        recording = Recording(leeward, pid, folder / "killed")
        for turn in range(2000):
            ordinary(service, connection, turn)
        during = facts(pid, folder / "tracefs")
        recording.kill()
        # The kernel frees what belonged to descriptors a moment later.
        for _ in range(50):
            for turn in range(200):
                ordinary(service, connection, turn)
            after = facts(pid, folder / "tracefs")
            left = {name: value for name, value in after.items() if sorted(value) != sorted(before[name])}
            if not left:
                break
            time.sleep(0.1)
        return {"left": left, "seen": during["BPF programs"] != before["BPF programs"]}
    finally:
        connection.close()
