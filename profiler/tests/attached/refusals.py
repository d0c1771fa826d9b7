"""Bad input, and processes that change while they are recorded: one sentence each.

Does not examine what a recording that works finds.
"""
import csv
import dataclasses
import io
import os
import pathlib
import re
import shutil
import signal
import subprocess
import time

from process import end, start, wait_until

NOBODY = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
SPIN = "import time\nwhile True:\n    sum(range(10000)); time.sleep(0.001)"
# A server each of whose requests takes 50 ms, and its client.
SERVE = """
import socket, threading, time
listener = socket.create_server(("127.0.0.1", 0))
client = socket.create_connection(listener.getsockname())
def ask():
    while client.send(b"?") and client.recv(1): pass
threading.Thread(target=ask, daemon=True).start()
connection = listener.accept()[0]
while connection.recv(1):
    time.sleep(0.05); connection.send(b"!")
"""
LIMIT_SECONDS = 60


@dataclasses.dataclass(frozen=True)
class Row:
    """What was asked, and what came of it."""
    title: str
    right: bool
    exit: object
    said: str


def spinner(*prefix, **options):
    return start([*prefix, "python3", "-c", SPIN], limit=600, **options)


def record(leeward, out, *words, prefix=(), seconds="1s"):
    """Runs the recorder; returns (exit code, what it said)."""
    command = [*prefix, leeward, "profile", "record", "--out", out, "--duration", seconds, *words]
    done = subprocess.run([str(word) for word in command], stdin=subprocess.DEVNULL, capture_output=True, text=True,
                          timeout=LIMIT_SECONDS, check=False)
    return done.returncode, (done.stderr + done.stdout).strip()


def unused_pid():
    most = int(pathlib.Path("/proc/sys/kernel/pid_max").read_text())
    return next(pid for pid in range(most - 1, 2, -1) if not os.path.exists(f"/proc/{pid}"))


def is_one_sentence(said):
    """A refusal is a line or two, not a usage page or a panic."""
    return 0 < len(said) < 500 and "panicked" not in said and said.count("\n") <= 6


def refused(leeward, folder, rows):
    """Recordings that can't begin: exit code 2 and a sentence that names the reason."""
    zombie = subprocess.Popen(["true"])
    time.sleep(0.2)
    process = spinner()
    everyone = folder / "leeward"
    shutil.copy(leeward, everyone)
    os.chmod(everyone, 0o755)
    theirs = folder / "theirs"
    theirs.mkdir(mode=0o777)
    os.chmod(theirs, 0o777)
    file = folder / "file"
    file.write_text("not a folder\n")
    out = folder / "refused"
    cases = [
        ("a process that does not exist", [leeward, out, "--pid", unused_pid()], {}, r"exist|no process|ended"),
        ("a process that has ended (zombie)", [leeward, out, "--pid", zombie.pid], {}, r"ended|exist|zombie"),
        ("a thread of the kernel", [leeward, out, "--pid", 2], {}, r"kernel"),
        ("no number", [leeward, out, "--pid", "redis"], {}, r"redis"),
        ("process 0", [leeward, out, "--pid", 0], {}, r"0"),
        ("another user's process", [everyone, theirs / "out", "--pid", process.pid], {"prefix": NOBODY},
         r"root|user|belongs"),
        ("a function that is not there", [leeward, out, "--pid", process.pid, "--request-fn", "no_such_function_77"], {},
         r"no_such_function_77"),
        ("an output folder that is a file", [leeward, file, "--pid", process.pid], {}, r"file|folder|directory"),
        ("a process and a program", [leeward, out, "--pid", process.pid, "--", "true"], {}, r"--pid|COMMAND"),
        ("neither process nor program", [leeward, out], {}, r"--pid|COMMAND"),
        ("an overhead of nothing", [leeward, out, "--pid", process.pid, "--overhead", "0%"], {}, r"overhead"),
        ("a rate of nothing", [leeward, out, "--pid", process.pid, "--rate", "0"], {}, r"rate"),
        ("a rate beyond all bounds", [leeward, out, "--pid", process.pid, "--rate", "100000000000"], {}, r"rate"),
    ]
    try:
        for title, words, options, pattern in cases:
            code, said = record(*words, **options)
            right = code == 2 and is_one_sentence(said) and bool(re.search(pattern, said))
            rows.append(Row(title, right, code, said))
    finally:
        end(process)
        zombie.wait()


def accepted(leeward, folder, rows):
    """Processes that are unusual or change meanwhile: recorded, with a trace that can be read."""
    def row(title, pid, *more, meanwhile=lambda: None, seconds="2s", pattern="", about="", codes=(0,), prefix=(),
            check=lambda trace: True):
        out = folder / f"accepted-{len(rows)}"
        running = start([*prefix, leeward, "profile", "record", "--out", str(out), "--duration", seconds, "--pid", str(pid), *more],
                        limit=LIMIT_SECONDS, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        wait_until(lambda: any(out.glob("*/*.lwt")) or running.poll() is not None, 20)
        time.sleep(0.5)
        meanwhile()
        said = running.communicate(timeout=LIMIT_SECONDS)[0].strip()
        end(running)
        info = subprocess.run([leeward, "profile", "info", out / str(pid)], capture_output=True, text=True, check=False)
        right = (running.returncode in codes and (info.returncode == 0 or running.returncode)
                 and bool(re.search(pattern, said)) and bool(re.search(about, info.stdout)) and check(out / str(pid)))
        rows.append(Row(title, right and "panicked" not in said, running.returncode, said))

    process = spinner()
    row("ends while it is recorded", process.pid, meanwhile=process.kill, seconds="60s")
    end(process)

    process = start(["python3", "-c", "import os, time\nwhile True:\n    if os.fork() == 0: os._exit(sum(range(9999)) * 0)\n    os.wait()"],
                    limit=600)
    row("forks again and again", process.pid)
    end(process)

    process = start(["sh", "-c", "i=0; while [ $i -lt 500000 ]; do i=$((i+1)); done; "
                     "exec python3 -c 'while True: sum(range(10000))'"], limit=600)
    row("executes another program", process.pid, seconds="4s", about="python")
    end(process)

    program = folder / "upgraded"
    shutil.copy("/usr/bin/python3", program)
    process = start([program, "-c", SPIN], limit=600)
    os.unlink(program)
    shutil.copy("/bin/true", program)
    # Its names are those of the file that runs, which the trace has a copy of.
    row("its file was replaced", process.pid, about="upgraded: (names|symbols)")
    end(process)

    process = spinner("unshare", "--pid", "--fork")
    wait_until(lambda: child(process.pid), 5)
    row("in a PID namespace of its own", child(process.pid))
    end(process)

    process = spinner()
    first = start([leeward, "profile", "record", "--out", str(folder / "twice"), "--duration", "20s", "--pid", str(process.pid)],
                  limit=LIMIT_SECONDS)
    time.sleep(1)
    row("is recorded by another already", process.pid)
    end(first)
    os.kill(process.pid, signal.SIGSTOP)
    row("is stopped", process.pid, codes=(0, 1), pattern="no CPU time")
    end(process)

    program = folder / "orders"
    source = pathlib.Path(__file__).resolve().with_name("orders.c")
    subprocess.run(["cc", "-O1", "-g", "-o", program, source], check=True, timeout=60)
    process = start([program], limit=600)
    row("has no connections", process.pid, seconds="4s", pattern=r"--request-fn 'handle_order'")
    row("a function that does not return", process.pid, "--request-fn", "main", codes=(1,), pattern="no call of `main`")
    end(process)

    process = start(["python3", "-c", SERVE], limit=600)
    row("is in a request when the recording begins", process.pid, check=lambda trace: has_switches(leeward, trace))
    end(process)

    process = spinner()
    row("without the right to use BPF", process.pid, prefix=["setpriv", "--bounding-set=-bpf,-sys_admin,-perfmon"],
        codes=(0, 2), pattern=r"(?s)^(?!.*--request-fn ').*(BPF|CAP_|root|perf_event_paranoid)")
    end(process)


def has_switches(leeward, trace):
    """Whether the trace has requests, and the sleep of each."""
    done = subprocess.run([leeward, "profile", "export", trace, "--format", "csv", "-o", "-"], capture_output=True,
                          text=True, timeout=LIMIT_SECONDS, check=False)
    rows = list(csv.DictReader(io.StringIO(done.stdout)))
    begins, ends, switches = (sorted(int(row["start_ns"]) for row in rows if row["kind"].startswith(kind))
                              for kind in ("request start", "request end", "switched out, blocked"))
    return bool(begins) and all(any(begin <= time <= end for time in switches) for begin, end in zip(begins, ends))


def child(pid):
    children = pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return int(children[0]) if children else None


def examine(leeward, folder):
    """Returns a row for each case."""
    rows = []
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    os.chmod(folder, 0o755)
    refused(str(leeward), folder, rows)
    accepted(str(leeward), folder, rows)
    return rows
