"""Prints sockets, threads and pressure of a process for one second, for authors of detectors."""
import glob
import os
import pathlib
import subprocess
import time

from process import read, stat

UNREADABLE = "(unreadable)"


def shell(command):
    """Output of a shell command."""
    return subprocess.run(command, shell=True, capture_output=True, text=True, timeout=20,
                          check=False).stdout.rstrip()


def threads(pid):
    """State, CPU time, waits and stack of each thread, by its id."""
    found = {}
    for task in glob.glob(f"/proc/{pid}/task/*"):
        thread = stat(task)
        if thread is None:
            continue
        name, fields = thread
        switches = dict(line.split(":\t") for line in (read(task + "/status") or "").splitlines()
                        if "ctxt_switches" in line)
        found[int(task.rsplit("/", 1)[1])] = {
            "name": name, "state": fields[0], "nice": fields[16],
            "cpu": int(fields[11]) + int(fields[12]),
            "sched": (read(task + "/schedstat") or "").split(),
            "voluntary": int(switches.get("voluntary_ctxt_switches", 0)),
            "forced": int(switches.get("nonvoluntary_ctxt_switches", 0)),
            "wchan": read(task + "/wchan") or UNREADABLE,
            "syscall": read(task + "/syscall") or UNREADABLE,
            "stack": [line.split("] ")[-1].split("+")[0]
                      for line in (read(task + "/stack") or "").splitlines()[:5]]}
    return found


def over_time(pid, port):
    """Ten times in a second: connections with unread bytes, and where the threads are."""
    unread, where = [], {}
    for _ in range(10):
        start = time.monotonic()
        rows = shell(f"ss -tnH 'sport = :{port}'").splitlines()
        unread.append(sum(int(row.split()[1]) > 0 for row in rows))
        for task in glob.glob(f"/proc/{pid}/task/*"):
            thread = stat(task)
            if thread is None:
                continue
            kind = (thread[1][0], read(task + "/wchan") or UNREADABLE)
            where[kind] = where.get(kind, 0) + 1
        time.sleep(max(0, start + 0.1 - time.monotonic()))
    return unread, where


def snapshot(pid, port, groups=()):
    """Sockets, and the threads' changes over one second."""
    lines = [f"# connections of the listener (first 6), then the listener\n"
             + shell(f"ss -tinmH 'sport = :{port}' | head -12"),
             shell(f"ss -tlnH 'sport = :{port}'"),
             "# connections, by unread bytes: "
             + shell(f"ss -tnH 'sport = :{port}' | awk '{{n++; if ($2>0) u++; if ($3>0) s++}} "
                     "END {print n+0, \"established,\", u+0, \"with unread bytes,\", s+0, "
                     "\"with unsent or unacknowledged bytes\"}'"),
             "# other sockets of the process\n"
             + shell(f"ss -tunpH 'sport != :{port}' | grep 'pid={pid},' | head -8")]
    before, start = threads(pid), time.monotonic()
    unread, where = over_time(pid, port)
    after, took = threads(pid), time.monotonic() - start
    lines.append(f"# connections with unread bytes, each 100 ms: {unread}")
    lines.append("# threads seen in (state, wchan), mean number: " + ", ".join(
        f"{state} {wchan}: {number / len(unread):.1f}" for (state, wchan), number
        in sorted(where.items(), key=lambda item: -item[1])[:10]))
    lines.append(f"# {len(after)} threads over {took:.2f} s: state nice cpu% run% runqueue% slices "
                 "voluntary/forced switches, wchan, syscall, stack")
    same = {}
    for tid, now in sorted(after.items()):
        old = before.get(tid, now)
        share = [(int(a) - int(b)) / 1e7 / took for a, b in zip(now["sched"][:2], old["sched"])]
        row = (f"{now['name']:15.15} {now['state']} {now['nice']:>3} "
               f"{(now['cpu'] - old['cpu']) / took:5.0f} " + " ".join(f"{s:5.1f}" for s in share)
               + f" {now['voluntary'] - old['voluntary']:5}/{now['forced'] - old['forced']:<4} "
               f"{now['wchan']} | {' '.join(now['syscall'].split()[:4])} | "
               f"{' < '.join(now['stack'])}")
        kind = (now["name"], now["state"], now["wchan"], now["syscall"].split()[:1].__str__(),
                round(share[0], -1) if share else 0)
        same.setdefault(kind, []).append(row)
    for rows in same.values():
        lines += rows[:3]
        if len(rows) > 3:
            lines.append(f"  … and {len(rows) - 3} more like these")
    lines.append("# /proc/PID/status\n" + "\n".join(
        line for line in (read(f"/proc/{pid}/status") or "").splitlines()
        if line.startswith(("State", "Threads", "VmRSS", "Cpus_allowed_list"))))
    lines.append(f"# /proc/PID/io: {read(f'/proc/{pid}/io')!r}")
    kinds = {}
    for link in glob.glob(f"/proc/{pid}/fd/*"):
        try:
            kind = os.readlink(link).split(":")[0]
        except OSError:
            continue
        kinds[kind] = kinds.get(kind, 0) + 1
    lines.append(f"# /proc/PID/fd: {dict(sorted(kinds.items(), key=lambda k: -k[1])[:8])}")
    lines.append("# /proc/PID/cgroup: " + (read(f"/proc/{pid}/cgroup") or UNREADABLE).replace("\n", " "))
    for group in groups:
        lines.append(f"# cpu.stat of the cgroup: {read(pathlib.Path(group, 'cpu.stat'))!r}")
    for kind in ("cpu", "io", "memory"):
        lines.append(f"# /proc/pressure/{kind}: " + (read(f"/proc/pressure/{kind}") or UNREADABLE).split("\n")[0])
    return "\n".join(lines) + "\n"
