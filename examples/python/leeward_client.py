"""A client of Leeward's protocol (docs/protocol.md) in a hundred lines.

It has one connection, blocks in each call, and sends a call only with a credit. It is for
documentation and scripts, and too slow for load.

    $ leeward serve --service echo &
    $ python3 examples/python/leeward_client.py 127.0.0.1:7117 "hello"
"""

import itertools
import socket
import struct
import sys
import time

# magic, version, kind, payload_len, request_id, timestamp, credit_id, custom, method or
# payload_max, window, demand, budget or retry_after, sojourn, priority, threshold, code, flags
HEADER = struct.Struct("<2sBBIQQQQIIIIIBBBB")
REGISTER, WELCOME, CALL, RESPONSE, DROP, FAILURE, CREDIT, DEREGISTER, PING, PONG, ERROR = 1, 2, 3, 4, 5, 6, 7, 9, 10, 11, 12
REASONS = {1: "delay", 2: "priority", 3: "concurrency", 4: "lock", 5: "no credit", 6: "shutting down", 7: "cancelled"}
LONGEST = 1 << 20


class Refused(Exception):
    """The server rejected the call. Retry after `retry_after` seconds, or at another server."""

    def __init__(self, reason, message, retry_after):
        super().__init__(f"refused: {reason} {message}".strip())
        self.reason, self.message, self.retry_after = reason, message, retry_after


class Failed(Exception):
    """An admitted call has no result, or the connection ended or carried an invalid frame."""


class Client:
    """A client's session: `with Client("127.0.0.1", 7117) as client: client.call(b"hello")`."""

    def __init__(self, host, port, timeout=5.0):
        self.socket = socket.create_connection((host, port), timeout)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.numbers, self.credit, self.window = itertools.count(1), 0, 1
        self._send(REGISTER, timestamp=time.monotonic_ns(), shared=LONGEST)
        kind, head, _ = self._receive()
        if kind != WELCOME:
            raise Failed("the server did not say welcome")
        self.longest, self.has_credits = head[8], head[15] == 1

    def call(self, argument, method=0, priority=64, budget=0.0):
        """Sends a call once the session has a credit for it, and returns its result.

        `budget`: queueing delay that the call may spend, in seconds, up to 4.29; 0 is no limit.
        """
        if len(argument) > self.longest:
            raise ValueError(f"the server takes {self.longest} bytes")
        while self.has_credits and self.window < 1:
            self._receive()  # no call is unanswered: only a credit can come
        number, sent = next(self.numbers), time.monotonic_ns()
        self._send(CALL, argument, number, sent, self.credit, method, min(int(budget * 1e9), 2**32 - 1), priority)
        while True:
            kind, head, payload = self._receive()
            if head[4] != number or kind not in (RESPONSE, DROP, FAILURE):
                continue
            if kind == RESPONSE:
                return payload
            message = payload.decode("utf-8", "replace")
            if kind == DROP:
                raise Refused(REASONS.get(head[15], "other"), message, head[11] / 1e9)
            raise Failed(message)

    def close(self):
        """Deregisters, which returns the credits, and closes the connection."""
        try:
            self._send(DEREGISTER)
        finally:
            self.socket.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def _send(self, kind, payload=b"", number=0, timestamp=0, credit=0, shared=0, budget=0, priority=0):
        # Unused fields must be zero: the server checks them.
        head = (b"LW", 1, kind, len(payload), number, timestamp, credit, 0, shared, 0, 0, budget, 0, priority, 0, 0, 0)
        self.socket.sendall(HEADER.pack(*head) + payload)

    def _receive(self):
        """Reads the next frame; stores its window and credit, and answers a ping."""
        head = HEADER.unpack(self._exactly(HEADER.size))
        magic, version, kind, length = head[:4]
        if (magic, version) != (b"LW", 1) or length > LONGEST:
            raise Failed("bytes that are no frame")
        payload = self._exactly(length)
        if kind == ERROR:
            raise Failed(f"the server ends the connection: {payload.decode('utf-8', 'replace')}")
        if kind == PING:
            self._send(PONG, timestamp=head[5])
        if kind in (WELCOME, RESPONSE, DROP, FAILURE, CREDIT):
            self.credit, self.window = head[6], head[9]  # a window replaces the last one
        return kind, head, payload

    def _exactly(self, count):
        data = b""
        while len(data) < count:
            piece = self.socket.recv(count - len(data))
            if not piece:
                raise Failed("the server has closed the connection")
            data += piece
        return data


if __name__ == "__main__":
    host, port = sys.argv[1].rsplit(":", 1)
    with Client(host, int(port)) as client:
        print(client.call(sys.argv[2].encode()).decode("utf-8", "replace"))
