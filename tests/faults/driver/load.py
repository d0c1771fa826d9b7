"""An open-loop HTTP/1.1 client in one process: keep-alive connections, Poisson arrivals.

A request is due at a time that no answer delays. If all connections are busy then, it waits here,
and its latency counts from the due time. The output is JSON lines: one line per second, and at
the end all requests as [due, sent, done] in seconds of CLOCK_MONOTONIC (`done` is null for a
request without answer).
"""
import argparse
import collections
import json
import random
import selectors
import signal
import socket
import time


class Connection:
    """A keep-alive connection, its request, and what it has received of the response."""

    def __init__(self, port, receive_buffer):
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        self.socket.setblocking(False)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if receive_buffer:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self.socket.connect_ex(("127.0.0.1", port))
        self.request = None
        self.head = b""
        self.missing = None


class Load:
    """Sends requests at their due times over idle connections."""

    def __init__(self, options):
        self.options = options
        self.selector = selectors.DefaultSelector()
        self.idle = collections.deque()
        self.waiting = collections.deque()
        self.requests = []
        self.answered = []
        self.stopped = False
        self.text = (f"GET {options.path} HTTP/1.1\r\nHost: service\r\n"
                     "User-Agent: client\r\n\r\n").encode()
        for _ in range(options.connections):
            self.open()

    def open(self):
        """Adds a connection."""
        connection = Connection(self.options.port, self.options.receive_buffer)
        self.selector.register(connection.socket, selectors.EVENT_READ, connection)
        self.idle.append(connection)

    def send(self, connection, request):
        """Sends a request; False if the connection cannot take it now."""
        try:
            connection.socket.send(self.text)
        except BlockingIOError:  # the handshake is not over: the accept queue is full
            return False
        except OSError:
            self.lost(connection)
            return False
        request[1] = time.monotonic()
        connection.request, connection.head, connection.missing = request, b"", None
        return True

    def lost(self, connection):
        """Replaces a connection that has ended."""
        self.selector.unregister(connection.socket)
        connection.socket.close()
        self.open()

    def receive(self, connection):
        """Reads a part of a response; after its end the connection is idle."""
        try:
            data = connection.socket.recv(self.options.read_bytes)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            if connection in self.idle:
                self.idle.remove(connection)
            self.lost(connection)
            return
        if connection.missing is None:
            connection.head += data
            end = connection.head.find(b"\r\n\r\n")
            if end < 0:
                return
            head = connection.head[:end].lower()
            length = int(head.split(b"content-length:")[1].split(b"\r\n")[0]) \
                if b"content-length:" in head else 0
            connection.missing = length - (len(connection.head) - end - 4)
            if b"transfer-encoding: chunked" in head:
                raise SystemExit("load: chunked answers are not understood")
        else:
            connection.missing -= len(data)
        if connection.missing <= 0 and connection.request:
            connection.request[2] = time.monotonic()
            self.answered.append(connection.request)
            connection.request = None
            self.idle.append(connection)

    def run(self, out):
        """Runs the load, and writes its lines to `out`."""
        arrivals = random.Random(self.options.seed)
        start = due = time.monotonic()
        end = start + self.options.seconds
        second = start + 1
        while not self.stopped and (now := time.monotonic()) < end:
            while due <= now:
                request = [due, None, None]
                self.requests.append(request)
                self.waiting.append(request)
                due += arrivals.expovariate(self.options.rate)
            tries = len(self.idle)
            while self.waiting and self.idle and tries:
                tries -= 1
                connection = self.idle.popleft()
                if self.send(connection, self.waiting[0]):
                    self.waiting.popleft()
                elif connection.socket.fileno() >= 0:
                    self.idle.append(connection)
            if now >= second:
                self.report(out, second - start)
                second += 1
            for key, _ in self.selector.select(max(0, min(due, second, end) - time.monotonic())):
                self.receive(key.data)
            if self.options.read_pause:
                time.sleep(self.options.read_pause)
        out.write(json.dumps({"end": time.monotonic(), "requests": self.requests}) + "\n")

    def report(self, out, second):
        """Writes the line of one second."""
        times = sorted(done - due for due, _, done in self.answered)
        self.answered = []
        line = {"second": round(second), "answers": len(times)}
        for name, share in (("p50_ms", 0.5), ("p99_ms", 0.99)):
            line[name] = round(1e3 * times[int(share * len(times))], 3) if times else None
        out.write(json.dumps(line) + "\n")
        out.flush()


def main():
    """Reads the options and runs the load until its end or SIGTERM."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--rate", type=float, required=True, help="requests per second")
    parser.add_argument("--connections", type=int, default=40)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--path", default="/price/7")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--receive-buffer", type=int, default=0, help="bytes, 0: the system's")
    parser.add_argument("--read-bytes", type=int, default=65536, help="bytes per read")
    parser.add_argument("--read-pause", type=float, default=0, help="seconds between reads")
    parser.add_argument("--out", required=True)
    options = parser.parse_args()
    load = Load(options)

    def stop(*_):
        load.stopped = True
    signal.signal(signal.SIGTERM, stop)
    with open(options.out, "w", encoding="utf-8") as out:
        load.run(out)


main()
