"""A backend that records what arrives, and a client that sends bytes and counts answers.

The backend reads strictly: what a proxy sends to it must be valid HTTP/1.1. Does not contain cases
or verdicts.
"""

import asyncio
import re
from collections import defaultdict

ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
NUMBER = re.compile(rb"(?<![a-z0-9])([tse])(\d+)")
FIELD = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*([^\x00\r\n]*?)[ \t]*\Z")


class Recorder(asyncio.Protocol):
    """One connection from a proxy. `requests`: by the number of their case; `invalid`: what no
    proxy may send."""

    def __init__(self, requests, invalid):
        self.requests, self.invalid, self.data = requests, invalid, b""

    def connection_made(self, transport):
        self.transport = transport

    def data_received(self, data):
        self.data += data
        try:
            while self._next():
                pass
        except ValueError as error:
            self.invalid.append((str(error), self.data[:400]))
            self.transport.close()

    def _next(self):
        head, found, rest = self.data.partition(b"\r\n\r\n")
        if not found:
            return False
        first, *lines = head.split(b"\r\n")
        parts = first.split(b" ")
        if len(parts) != 3 or parts[2] not in (b"HTTP/1.1", b"HTTP/1.0"):
            raise ValueError("request line")
        fields = defaultdict(list)
        for line in lines:
            field = FIELD.match(line)
            if not field:
                raise ValueError("header")
            fields[field[1].lower()].append(field[2])
        lengths, codings = fields[b"content-length"], fields[b"transfer-encoding"]
        if len(lengths) > 1 or len(codings) > 1 or (lengths and codings):
            raise ValueError("framing")
        if codings:
            if codings[0].lower() != b"chunked":
                raise ValueError("transfer coding")
            read = self._chunks(rest)
            if read is None:
                return False
            body, self.data = read
        else:
            if lengths and not lengths[0].isdigit():
                raise ValueError("length")
            length = int(lengths[0]) if lengths else 0
            if len(rest) < length:
                return False
            body, self.data = rest[:length], rest[length:]
        of = NUMBER.search(parts[1])
        kind, number = (of[1], int(of[2])) if of else (b"t", int((fields[b"x-case"] or [b"-1"])[0]))
        host = b"|".join(fields[b"host"])
        self.requests[number].append((kind.decode(), parts[0], parts[1], host, body))
        self.transport.write(ANSWER if parts[0] != b"HEAD" else ANSWER[:-2])
        return True

    @staticmethod
    def _chunks(data):
        body = b""
        while True:
            line, found, data = data.partition(b"\r\n")
            if not found:
                return None
            size = line.split(b";")[0]
            if not re.fullmatch(rb"[0-9A-Fa-f]{1,15}", size):
                raise ValueError("chunk size")
            size = int(size, 16)
            if size == 0:
                while True:
                    line, found, data = data.partition(b"\r\n")
                    if not found:
                        return None
                    if not line:
                        return body, data
            if len(data) < size + 2:
                return None
            if data[size : size + 2] != b"\r\n":
                raise ValueError("chunk end")
            body, data = body + data[:size], data[size + 2 :]


class Client(asyncio.Protocol):
    """Sends the bytes of a case and waits until the proxy closes or is silent for `patience`."""

    def __init__(self, data, patience):
        self.bytes, self.patience, self.received = data, patience, b""
        self.done = asyncio.get_running_loop().create_future()
        self.is_closed = False

    def connection_made(self, transport):
        self.transport = transport
        self._wait()
        transport.write(self.bytes)

    def _wait(self):
        self.timer = asyncio.get_running_loop().call_later(self.patience, self._end)

    def data_received(self, data):
        self.received += data
        self.timer.cancel()
        self._wait()

    def connection_lost(self, _):
        self.is_closed = True
        self._end()

    def _end(self):
        self.timer.cancel()
        if not self.done.done():
            self.done.set_result(None)
        self.transport.abort()


def statuses(received):
    """The statuses of the answers in these bytes, without interim ones."""
    return [int(status) for status in re.findall(rb"HTTP/1\.[01] (\d{3})", received) if status[:1] != b"1"]


async def play(port, cases, patience, at_once):
    """Sends all cases; returns the statuses by number, and whether the proxy closed."""
    results = {}
    queue = iter(cases)
    loop = asyncio.get_running_loop()

    async def one_after_the_other():
        for case in queue:
            for _ in range(3):
                try:
                    _, client = await loop.create_connection(lambda: Client(case.data, patience), "127.0.0.1", port)
                    break
                except OSError:
                    await asyncio.sleep(0.1)
            await client.done
            results[case.number] = (statuses(client.received), client.is_closed)

    await asyncio.gather(*(one_after_the_other() for _ in range(at_once)))
    # What a proxy still sends to the backend.
    await asyncio.sleep(min(patience, 0.5))
    return results
