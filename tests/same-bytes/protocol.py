"""Frames of docs/protocol.md, and exchanges with a server that do not depend on its speed."""

import hashlib
import socket
import struct
import time

# `method` is also payload_max, and `budget` is also retry_after (docs/protocol.md has the offsets).
HEADER = struct.Struct("<2sBBIQQQQIIIIIBBBB")
FIELDS = ("magic", "version", "kind", "length", "request", "timestamp", "credit", "custom", "method", "window", "demand", "budget", "sojourn",
          "priority", "threshold", "code", "flags")
REGISTER, WELCOME, CALL, RESPONSE, DROP, FAILURE, CREDIT, DEMAND, DEREGISTER, PING, PONG, ERROR, CANCEL = range(1, 14)
# Fields that depend on time: the sojourn; with a controller that gives credits also its grants.
TIMES = {"sojourn"}
GRANTS = TIMES | {"credit", "custom", "window", "threshold", "budget"}
PATIENCE = 20
ROUNDS = 200


def frame(kind, payload=b"", version=1, length=None, **fields):
    head = {"magic": b"LW", "version": version, "kind": kind, "length": len(payload) if length is None else length, **fields}
    return HEADER.pack(*(head.get(field, 0) for field in FIELDS)) + payload


def register(version=1, longest=1 << 20, demand=0):
    return frame(REGISTER, version=version, timestamp=0x0102030405060708, method=longest, demand=demand)


def call(request, argument=b"hello", version=1, priority=64, **fields):
    return frame(CALL, argument, version, request=request, timestamp=0x1111 * request, priority=priority, **fields)


def said(payload):
    return repr(payload) if len(payload) <= 200 else f"{payload[:16]!r}… sha256 {hashlib.sha256(payload).hexdigest()}"


def shown(data, masked):
    """A server's bytes as text, a line per frame, without fields and frames that depend on time."""
    lines = []
    while data:
        head = dict(zip(FIELDS, HEADER.unpack(data[:HEADER.size]))) if len(data) >= HEADER.size else None
        if head is None or head["magic"] != b"LW" or len(data) < HEADER.size + head["length"]:
            return "\n".join([*lines, f"no frame: {said(data)}", ""])
        payload, data = data[HEADER.size:HEADER.size + head["length"]], data[HEADER.size + head["length"]:]
        # Omits pings to idle clients and credits to waiting clients: both depend on time.
        if head["kind"] == PING or head["kind"] == CREDIT and "window" in masked:
            continue
        values = [f"{field}={'*' if field in masked else value}" for field, value in head.items() if field != "magic"]
        lines.append(" ".join([*values, said(payload)]))
    return "\n".join([*lines, ""])


class Probe:
    """A second connection. Its answers show that the server has read earlier messages of others."""

    def __init__(self, address, hello, ask, answer):
        self.socket = socket.create_connection(address, PATIENCE)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.ask, self.answer, self.read = ask, answer, b""
        self.socket.sendall(hello)

    def settle(self):
        for _ in range(3):
            self.socket.sendall(self.ask)
            until = time.monotonic() + PATIENCE
            while self.answer not in self.read:
                piece = self.socket.recv(1 << 16)
                if not piece or time.monotonic() > until:
                    raise ConnectionError("the server answers no more")
                self.read += piece
            self.read = b""

    def close(self):
        self.socket.close()


class Conversation:
    """One connection: sends `data`, and collects all answers."""

    def __init__(self, address, data):
        self.read, self.ended = b"", False
        self.socket = socket.create_connection(address, PATIENCE)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            self.socket.sendall(data)
        except OSError:
            pass  # a server may stop reading after an error

    def take(self):
        """Reads all bytes that have arrived; returns whether anything has changed."""
        before = len(self.read), self.ended
        self.socket.setblocking(False)
        while not self.ended:
            try:
                piece = self.socket.recv(1 << 20)
            except BlockingIOError:
                break
            except OSError:
                piece = b""
            self.read += piece
            self.ended = not piece
        return (len(self.read), self.ended) != before

    def finish(self):
        """Ends the sending side, and reads the rest; returns which side closed the connection."""
        closed = "by the server" if self.ended else "by the client"
        if not self.ended:
            try:
                self.socket.shutdown(socket.SHUT_WR)
                self.socket.setblocking(True)
                self.socket.settimeout(PATIENCE)
                while piece := self.socket.recv(1 << 20):
                    self.read += piece
            except TimeoutError:
                closed = "by nobody"
            except OSError:
                pass
        self.socket.close()
        return closed


def converse(address, probe, sent, pause):
    """Sends each of `sent` over its own connection; returns each one's answers and closing side."""
    talks = []
    try:
        talks = [Conversation(address, data) for data in sent]
        quiet = 0
        for _ in range(ROUNDS):
            probe.settle()
            # Ends after two checks in a row without an answer: one may be late on a busy machine.
            quiet = 0 if any([talk.take() for talk in talks]) else quiet + 1
            if quiet == 2:
                break
            time.sleep(pause)
        closed = [talk.finish() for talk in talks]
        return [(talk.read, by) for talk, by in zip(talks, closed)]
    finally:
        for talk in talks:
            talk.socket.close()
