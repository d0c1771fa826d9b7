"""Part `wire`: a server's answers to frames and to memcached's commands, valid and invalid ones.

Each vector of the repository goes to both ports, besides the vectors in this file. A change of a
vector's own bytes is a difference, too.
"""

import hashlib
import re

from processes import Unusable, serving
from protocol import CANCEL, DEMAND, DEREGISTER, GRANTS, PING, PONG, TIMES, Probe, call, converse, frame, register, shown

PING_BYTES = frame(PING, timestamp=0x5EED)
PONG_BYTES = frame(PONG, timestamp=0x5EED)

FRAMES = {
    "register": register(),
    "register-version-2": register(version=2),
    "register-version-3": register(version=3),
    "register-twice": register() + register(),
    "register-short-payloads": register(longest=1024) + call(1, b"x" * 1024),
    "register-payloads-too-short": register(longest=1023),
    "register-payloads-too-long": register(longest=(1 << 30) + 1),
    "call": register() + call(1),
    "call-version-2": register(version=2) + call(1, version=2),
    "call-of-another-version": register() + call(1, version=2),
    "call-empty": register() + call(1, b""),
    "call-long": register() + call(1, bytes(range(256)) * 64),
    "call-longest": register() + call(1, b"z" * 1024) + call(2, b"y" * (1 << 20)),
    "call-too-long": register() + call(1, b"", length=(1 << 20) + 1),
    "call-result-too-long": register(longest=1024) + call(1, b"r" * 2000),
    "call-before-register": call(1),
    "call-after-deregister": register() + frame(DEREGISTER) + call(1),
    "call-request-zero": register() + call(0),
    "call-priorities": register() + b"".join(call(at, priority=at) for at in (1, 2, 64, 127, 128)),
    "call-priority-129": register() + call(1, priority=129),
    "call-priority-0": register() + call(1, priority=0),
    "call-methods": register() + b"".join(call(at + 1, method=method) for at, method in enumerate((0, 1, 7, 1 << 31))),
    "call-budgets": register() + b"".join(call(at + 1, budget=budget) for at, budget in enumerate((0, 10**9, (1 << 32) - 1))),
    "call-window-set": register() + call(1, window=1),
    "call-flags": register() + call(1, flags=1),
    "call-half": register() + call(1)[:-2],
    "calls-64": register() + b"".join(call(at, b"%d" % at) for at in range(1, 65)),
    "cancel": register(version=2) + call(1, version=2) + frame(CANCEL, version=2, request=1),
    "cancel-unknown": register(version=2) + frame(CANCEL, version=2, request=9),
    "cancel-version-1": register() + frame(CANCEL, request=1),
    "demand": register() + frame(DEMAND, demand=16) + PING_BYTES,
    "demand-before-register": frame(DEMAND, demand=16),
    "demand-after-deregister": register() + frame(DEREGISTER) + frame(DEMAND, demand=1),
    "deregister": register() + call(1) + frame(DEREGISTER),
    "deregister-first": frame(DEREGISTER),
    "ping": register() + PING_BYTES + frame(PING, timestamp=(1 << 64) - 1),
    "ping-before-register": PING_BYTES,
    "pong-unasked": register() + PONG_BYTES + PING_BYTES,
    "nothing": b"",
    "http": b"GET / HTTP/1.1\r\nhost: a\r\n\r\n",
    "tls": bytes.fromhex("16030100c8010000c40303") + bytes(64),
    "kinds": register() + frame(0),
} | {f"kind-{kind}": register() + frame(kind) for kind in range(2, 20)}

COMMANDS = {
    "store": b"set a 1 0 3\r\nabc\r\nget a\r\nadd a 0 0 1\r\nx\r\nadd b 0 0 1\r\nx\r\nreplace c 0 0 1\r\nx\r\nreplace b 0 0 1\r\ny\r\nget a b c\r\n",
    "append": b"set a 0 0 1\r\nb\r\nappend a 0 0 1\r\nc\r\nprepend a 0 0 1\r\na\r\nget a\r\nappend no 0 0 1\r\nc\r\n",
    "cas": b"set a 0 0 1\r\nb\r\ngets a\r\ncas a 0 0 1 99999999\r\nc\r\ncas no 0 0 1 1\r\nc\r\ncas a 0 0 1\r\nc\r\n",
    "numbers": b"set n 0 0 2\r\n10\r\nincr n 5\r\ndecr n 100\r\nincr n x\r\nincr no 1\r\nset n 0 0 1\r\nx\r\nincr n 1\r\n",
    "wraps": b"set n 0 0 20\r\n18446744073709551615\r\nincr n 1\r\nget n\r\ndecr n 1\r\n",
    "delete": b"set a 0 0 1\r\nb\r\ndelete a\r\ndelete a\r\ndelete a 0\r\ndelete a 5\r\n",
    "touch": b"set a 0 0 1\r\nb\r\ntouch a 100\r\ntouch no 1\r\ngat 100 a no\r\ngats 100 no\r\n",
    "expired": b"set a 0 -1 1\r\nb\r\nget a\r\n",
    "noreply": b"set a 0 0 1 noreply\r\nb\r\nget a\r\ndelete a noreply\r\nget a\r\nverbosity 1 noreply\r\nflush_all noreply\r\nmn\r\n",
    "flush": b"set a 0 0 1\r\nb\r\nflush_all\r\nget a\r\nflush_all 0\r\nflush_all x\r\n",
    "words": b"version\r\nverbosity 1\r\nverbosity\r\nmn\r\n",
    "meta": b"ms a 1 F5 T0\r\nb\r\nmg a v f s k t\r\nmg no v\r\nmg no v q\r\nmn\r\nma n N0 J7 v\r\nma n D3 v\r\nmd a q\r\nmd a\r\nme a\r\nmn\r\n",
    "meta-bad": b"mg\r\nmg a !\r\nms a x\r\nms a 1 Mz\r\nb\r\nma a Mz\r\nmx a\r\n",
    "meta-modes": b"ms a 1 ME\r\nb\r\nms a 1 ME\r\nb\r\nms a 1 MA\r\nc\r\nms a 1 MP\r\na\r\nms a 1 MR\r\nz\r\nmg a v\r\n",
    "bad": b"nonsense\r\nget\r\nset\r\nset a\r\nset a 0 0 x\r\nset a 0 0 -1\r\nincr\r\n\r\n\n",
    "bad-data": b"set a 0 0 1\r\nbcd\r\nget a\r\n",
    "key-long": b"get " + b"k" * 250 + b"\r\nget " + b"k" * 251 + b"\r\n",
    "key-bad": b"get a\x01b\r\nget \xff\r\n",
    "value-large": b"set a 0 0 100000\r\n" + b"v" * 100000 + b"\r\nget a\r\n",
    "value-too-large": b"set a 0 0 1048577\r\n" + b"v" * 1048577 + b"\r\nget a\r\n",
    "lines-of-lf": b"set a 0 0 1\nb\nget a\n",
    "quit": b"get a\r\nquit\r\nget a\r\n",
    "half": b"set a 0 0 10\r\nabc",
    "line-too-long": b"g" * 70000,
    "many": b"get a\r\n" * 500,
}


def vectors(subject):
    """Vectors of the repository: corpora of frames and sessions, and the specification's."""
    found = {name: path.read_bytes() for name, path in subject.inputs("*corpus/*.bin")}
    if not found:
        raise Unusable(f"{subject.label}: no corpus of vectors")
    # Older revisions have the specification's vectors in blocks of protocol.md.
    for _, path in subject.inputs("*protocol.md", "*protocol-vectors.txt"):
        blocks = r"^(?:```hex ([\w-]+)|\[([\w-]+)\])\n(.*?)(?:^```|^$|\Z)"
        for old, new, block in re.findall(blocks, path.read_text(), re.MULTILINE | re.DOTALL):
            name = old or new
            digits = "".join(line.split("#")[0] for line in block.splitlines())
            found[f"specified-{name}"] = bytes.fromhex(digits)
    return found


def keep(results, group, names, talks, text):
    folder = results / group
    folder.mkdir(parents=True, exist_ok=True)
    for name, (read, closed) in zip(names, talks):
        (folder / f"{name}.txt").write_text(f"{text(read)}closed {closed}\n", "utf-8")


def frames(subject, results, work, sent, admission, masked):
    # A busy machine meets this objective, too: the server rejects no request for its delay.
    flags = ["serve", "--service", "echo", "--admission", admission, "--slo", "4s", "--listen", "127.0.0.1:0", "--idle", "block"]
    with serving([subject.program, *flags], work / admission, subject.env) as server:
        address = server.main()
        probe = Probe(address, register(), PING_BYTES, PONG_BYTES)
        try:
            names = list(sent)
            for at in range(0, len(names), 32):
                some = names[at:at + 32]
                keep(results, admission, some, converse(address, probe, [sent[name] for name in some], 0.05), lambda read: shown(read, masked))
        finally:
            probe.close()
    (results / admission / "server.txt").write_bytes(ended(server))


def calls(data):
    return len(re.findall(rb"LW[\x01\x02]\x03", data))


def ended(server):
    """The server's output, without ports and counts."""
    return re.sub(rb"\d+", b"N", server.printed().encode() + (server.folder / "serve.err").read_bytes())


def memcached_text(read):
    """Lines of memcached's protocol, without the values of statistics."""
    return re.sub(r"^(STAT \S+) .*$", r"\1 *", read.decode("latin-1"), flags=re.MULTILINE).replace("\r\n", "\\r\\n\n")


def sessions(subject, results, work, sent, options):
    flags = ["serve", "--service", "kv", "--admission", "none", "--listen", "127.0.0.1:0", "--memcached", "127.0.0.1:0", "--idle", "block"]
    with serving([subject.program, *flags], work / "memcached", subject.env) as server:
        address = server.memcached()
        probe = Probe(address, b"", b"mn\r\n", b"MN\r\n")
        try:
            for name, data in sent.items():
                # One after the other: all sessions share the stored pairs.
                keep(results, "memcached", [name], converse(address, probe, [data], 0.01), memcached_text)
                options.progress(f"memcached: {name}")
        finally:
            probe.close()
    (results / "memcached" / "server.txt").write_bytes(ended(server))


def collect(subject, results, work, options):
    found = vectors(subject)
    (results / "vectors").mkdir()
    for name, data in found.items():
        (results / "vectors" / f"{name}.sha256").write_text(hashlib.sha256(data).hexdigest() + "\n")
    # Also after a `Register`: without it, the server rejects most frames as unexpected.
    greeted = {f"greeted-{name}": register() + data for name, data in found.items()}
    sent = found | greeted | FRAMES
    frames(subject, results, work, sent, "none", TIMES)
    # Of several calls, time decides which has a credit: vectors with two or more are left out.
    frames(subject, results, work, {name: data for name, data in sent.items() if calls(data) < 2}, "breakwater", GRANTS)
    sessions(subject, results, work, COMMANDS | found, options)
