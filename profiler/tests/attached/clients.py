"""Clients of the services: each asks one request and reads its whole answer.

Does not contain faults, and measures nothing.
"""
import socket
import struct

LIMIT_SECONDS = 30


class Connection:
    """A TCP connection to a port of this machine, with a buffer of what was received."""

    def __init__(self, port, held=None):
        """`held`: bytes that the kernel holds while the client does not read."""
        self.socket = socket.socket()
        self.socket.settimeout(LIMIT_SECONDS)
        if held:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, held)
        self.socket.connect(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.buffer = bytearray()

    def send(self, data):
        self.socket.sendall(data)

    def more(self):
        received = self.socket.recv(1 << 18)
        if not received:
            raise OSError("the service closed the connection")
        self.buffer += received

    def take(self, length):
        while len(self.buffer) < length:
            self.more()
        taken = bytes(self.buffer[:length])
        del self.buffer[:length]
        return taken

    def until(self, end):
        """Takes what comes up to `end`, which is included."""
        begin = 0
        while (at := self.buffer.find(end, begin)) < 0:
            begin = max(0, len(self.buffer) - len(end))
            self.more()
        return self.take(at + len(end))

    def skip(self, end):
        """Reads up to `end` and keeps nothing: storing a long answer is not the service's time."""
        tail, taken = bytes(self.buffer), bytearray(1 << 18)
        self.buffer.clear()
        while not tail.endswith(end):
            if not (length := self.socket.recv_into(taken)):
                raise OSError("the service closed the connection")
            tail = (tail + taken[max(0, length - len(end)):length])[-len(end):]

    def close(self):
        self.socket.close()


class Redis(Connection):
    @staticmethod
    def command(*words):
        words = [word if isinstance(word, bytes) else str(word).encode() for word in words]
        return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in words)

    def ask(self, *words):
        self.send(self.command(*words))
        return self.reply()

    def reply(self):
        line = self.until(b"\r\n")[:-2]
        kind, rest = line[:1], line[1:]
        if kind == b"-":
            raise OSError(f"redis: {rest.decode()}")
        if kind == b"$" and int(rest) >= 0:
            return self.take(int(rest) + 2)[:-2]
        if kind == b"*":
            return [self.reply() for _ in range(int(rest))]
        return rest


class Http(Connection):
    def ask(self, path, method="GET"):
        self.send(f"{method} {path} HTTP/1.1\r\nHost: service\r\nAccept-Encoding: gzip\r\n\r\n".encode())
        head = self.until(b"\r\n\r\n").decode("latin1").lower()
        status = int(head.split()[1])
        if status >= 500:
            raise OSError(f"HTTP status {status}")
        if "transfer-encoding: chunked" in head:
            while length := int(self.until(b"\r\n"), 16):
                self.take(length + 2)
            self.take(2)
        elif "content-length:" in head:
            self.take(int(head.split("content-length:")[1].split()[0]))
        return status


class HttpOnce:
    """A connection for each request."""

    def __init__(self, port):
        self.port = port

    def ask(self, path):
        connection = Http(self.port)
        connection.ask(path)
        connection.close()

    def close(self):
        pass


class Memcached(Connection):
    def ask(self, line, end=b"END\r\n"):
        self.send(line)
        return self.until(end)


class Postgres(Connection):
    """The simple query protocol, without a password."""

    def __init__(self, port, user="postgres", database="postgres"):
        super().__init__(port)
        words = b"user\0%s\0database\0%s\0\0" % (user.encode(), database.encode())
        self.send(self.greeting(words))
        self.ready()

    @staticmethod
    def greeting(words):
        return struct.pack(">II", len(words) + 8, 196608) + words

    @staticmethod
    def query(text):
        return b"Q" + struct.pack(">I", len(text) + 5) + text.encode() + b"\0"

    def ready(self):
        """Reads messages until the server waits for a query; returns the rows' first columns."""
        rows = []
        while True:
            kind, length = struct.unpack(">cI", self.take(5))
            body = self.take(length - 4)
            if kind == b"E":
                raise OSError("PostgreSQL: " + body.replace(b"\0", b" ").decode(errors="replace"))
            if kind == b"D":
                size = struct.unpack(">i", body[2:6])[0]
                rows.append(body[6:6 + max(size, 0)].decode())
            if kind == b"Z":
                return rows

    def ask(self, text):
        self.send(self.query(text))
        return self.ready()
