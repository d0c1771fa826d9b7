"""Part `instructions`: instructions per operation of the hot paths, counted by callgrind.

A server runs with few and with many requests. The difference of the counts, divided by the
difference of the requests, is an operation's cost without the server's start and end.

The result omits two counts that depend on chance:
- instructions of the main thread, which measures the clock at its start;
- polls that find nothing, because the next request is late or a tick is due. An idle run measures
  the cost of such a poll. One poll per round stays in the count.
"""

import json
import os
import re
import shutil
import signal
import socket
import time
from contextlib import contextmanager, nullcontext
from pathlib import Path

from processes import Unusable, run, serving
from protocol import CREDIT, DROP, FAILURE, FIELDS, HEADER, RESPONSE, WELCOME, call, register

TOLERANCE = 0.02
TIMEOUT = 900
IDLE_S, TURNS = (0.5, 3), 2
# Name, admission, connections, requests under way on each, rounds of few and of many requests.
SERVED = [
    ("round-trip", "none", 1, 1, 640, 3200), ("echo-1", "none", 8, 1, 80, 400), ("echo-8", "none", 8, 8, 80, 400),
    ("admission-breakwater", "breakwater", 1, 1, 640, 3200), ("admission-auto", "auto", 1, 1, 640, 3200),
]
SIMULATED = ["run", "bw-overall", "--quick", "--set", "run.seeds=1", "--set", "run.duration=20ms", "--set", "run.warmup=5ms", "--threads", "1"]


class Client:
    """A client's session, which sends no more calls than its window allows."""

    def __init__(self, address):
        self.socket = socket.create_connection(address, 60)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.read, self.request, self.credit, self.window, self.binds = b"", 0, 0, 1, False
        self.socket.sendall(register())
        self.receive(WELCOME)

    def receive(self, *kinds):
        """Reads frames up to one of these kinds; returns its kind."""
        until = time.monotonic() + 60
        while True:
            if len(self.read) >= HEADER.size:
                head = dict(zip(FIELDS, HEADER.unpack(self.read[:HEADER.size])))
                whole = HEADER.size + head["length"]
                if len(self.read) >= whole:
                    self.read = self.read[whole:]
                    if head["kind"] in (WELCOME, RESPONSE, DROP, FAILURE, CREDIT):
                        self.credit, self.window = head["credit"], head["window"]
                    if head["kind"] == WELCOME:
                        self.binds = head["code"] == 1
                    if head["kind"] in kinds:
                        return head["kind"]
                    continue
            # No sleep here: the client must send the next round as soon as an answer arrives.
            try:
                piece = self.socket.recv(1 << 16, socket.MSG_DONTWAIT)
            except BlockingIOError:
                if time.monotonic() > until:
                    raise Unusable("a server answers no more while instructions are counted") from None
                continue
            if not piece:
                raise Unusable("the server has ended a connection while instructions were counted")
            self.read += piece

    def send(self, count):
        while self.binds and self.window < count:
            self.receive(CREDIT)
        frames = [call(self.request + at + 1, b"12345678", credit=self.credit) for at in range(count)]
        self.request += count
        self.socket.sendall(b"".join(frames))

    def answers(self, count):
        for _ in range(count):
            self.receive(RESPONSE, DROP, FAILURE)


def counting(work, program):
    for old in work.glob("counts*"):
        old.unlink()
    files = [f"--callgrind-out-file={work / 'counts'}", f"--log-file={work / 'valgrind.log'}"]
    return ["valgrind", "--tool=callgrind", "--separate-threads=yes", *files, program]


def counted(work, first_thread):
    """Instructions of all threads from `first_thread` on, and the number of their polls."""
    total, polls = 0, 0
    for path in sorted(work.glob("counts-*")):
        if int(path.name.split("-")[1]) < first_thread:
            continue
        text, called, known = path.read_text("latin-1"), "", {}
        for line in text.splitlines():
            if line.startswith("totals: "):
                total += int(line[8:])
            elif line.startswith("calls="):
                polls += int(line[6:].split()[0]) if called.startswith("epoll_wait") else 0
            elif named := re.match(r"(c?)fn=\((\d+)\)(?: (.*))?", line):
                known.setdefault(named[2], named[3])
                called = known[named[2]] if named[1] else called
    if not total:
        raise Unusable(f"valgrind counted nothing:\n{(work / 'valgrind.log').read_text()[-2000:]}")
    return total, polls


@contextmanager
def stopped(process):
    """Stops the process during the block. When it continues, all messages have arrived at once."""
    os.kill(process.pid, signal.SIGSTOP)
    os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOWAIT)
    try:
        yield
    finally:
        os.kill(process.pid, signal.SIGCONT)


def of_server(subject, work, admission, connections, depth, rounds, idle_s=0):
    """Instructions and polls of a server's cores.

    In each of `rounds`, every connection sends `depth` requests. An idle time follows.
    """
    # Valgrind makes requests slow. With this objective and round trip no controller sees overload.
    flags = ["serve", "--service", "echo", "--admission", admission, "--slo", "4s", "--rtt", "100ms", "--listen", "127.0.0.1:0", "--idle", "block",
             "--io-uring", "off"]
    with serving([*counting(work, subject.program), *flags], work, subject.env, patience=60) as server:
        address = server.main()
        clients = [Client(address) for _ in range(connections)]
        for _ in range(rounds):
            with stopped(server.process) if connections > 1 else nullcontext():
                for client in clients:
                    client.send(depth)
            for client in clients:
                client.answers(depth)
        time.sleep(idle_s)
        for client in clients:
            client.socket.close()
    return counted(work, 2)


def of_a_poll(subject, work):
    """Instructions of a poll that finds nothing, measured without a controller that ticks."""
    if not hasattr(subject, "poll"):
        (short, few), (long, many) = (of_server(subject, work, "none", 1, 1, 0, idle_s) for idle_s in IDLE_S)
        subject.poll = (long - short) / max(1, many - few)
    return subject.poll


def per_request(subject, work, admission, connections, depth, few, many):
    """Instructions per request: the minimum of `TURNS` measurements, because chance only adds."""
    poll, found = of_a_poll(subject, work), []
    for _ in range(TURNS):
        (less, less_polls), (more, more_polls) = (of_server(subject, work, admission, connections, depth, rounds) for rounds in (few, many))
        in_vain = more_polls - less_polls - (many - few)
        found.append((more - less - poll * in_vain) / (many - few) / (connections * depth))
    return min(found)


def of_command(subject, work, *arguments):
    ended = run([*counting(work, subject.program), *arguments], work, subject.env, TIMEOUT)
    return counted(work, 1)[0], ended.out


def measures(subject, work):
    """Yields the name of each measure, and a function that measures once."""
    for name, *asked in SERVED:
        yield name, lambda asked=asked: per_request(subject, work, *asked)
    for name, path in subject.inputs("*golden/*.rec"):
        yield f"decisions {name[:-4]}", lambda p=path: per_decision(subject, work, p)
    yield "simulate", lambda: of_command(subject, work, *SIMULATED)[0]


def per_decision(subject, work, path):
    shutil.copy(path, work / path.name)
    count, out = of_command(subject, work, "replay", path.name, "--json")
    start, _ = of_command(subject, work, "--version")
    return (count - start) / json.loads(out)["counts"]["compared"]


def compare_instructions(old, new, options):
    """Prints old, new and ratio of each measure; returns whether all are near 1 (`TOLERANCE`)."""
    if not shutil.which("valgrind"):
        raise Unusable("--instructions needs valgrind, which is not installed: `apt-get install valgrind`")
    began, far, count = time.monotonic(), 0, 0
    for subject in (old, new):
        subject.use("release")
    works = [subject.folder / "work" / "instructions" for subject in (old, new)]
    for work in works:
        work.mkdir(parents=True, exist_ok=True)
    print(f"{'instructions':<28} {'old':>12} {'new':>12}  ratio   OLD against itself")
    for (name, before), (_, after) in zip(measures(old, works[0]), measures(new, works[1])):
        options.what = f"instructions, {name}"
        options.progress("")
        first, changed, second = before(), after(), before()
        ratio, spread = changed / min(first, second), second / first
        is_far = abs(ratio - 1) > TOLERANCE
        count, far = count + 1, far + is_far
        print(f"  {name:<26} {min(first, second):>12.0f} {changed:>12.0f}  {ratio:.3f}   {spread:.3f}{'  DIFFERENT' if is_far else ''}", flush=True)
    verdict = f"DIFFERENT  {far} of {count}" if far else f"same       {count}"
    print(f"{'instructions':<12} {verdict} measures, {time.monotonic() - began:.0f} s", flush=True)
    return not far
