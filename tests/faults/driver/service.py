"""Builds the services and starts one of them on a free port."""
import os
import pathlib
import shutil
import socket
import subprocess

from process import start, wait_until

HERE = pathlib.Path(__file__).resolve().parent.parent
LIMIT_SECONDS = 120


class Skipped(Exception):
    """A language is not installed; the text says what is missing."""


def tool(*names):
    """Path of the first of these programs that is installed. Raises Skipped if none is."""
    for name in names:
        if found := shutil.which(name):
            return found
    raise Skipped(f"{names[0]} is not installed")


class Programs:
    """The services, each compiled at its first use."""

    def __init__(self, folder):
        self.folder = folder
        self.folder.mkdir(exist_ok=True)
        self.known = {}

    def command(self, server):
        """Command line of a service. Raises Skipped if it cannot be built."""
        if server not in self.known:
            try:
                self.known[server] = self.build(server)
            except Skipped as reason:
                self.known[server] = reason
        if isinstance(self.known[server], Skipped):
            raise self.known[server]
        return self.known[server]

    def build(self, server):
        """Compiles a service, and returns its command line."""
        language, _, name = server.partition("/")
        source, program = HERE / language, str(self.folder / server.replace("/", "-"))
        if language == "c":
            files = [source / f"{part}.c" for part in (name, "http", "handlers")]
            self.compile([tool("cc", "gcc"), "-O1", "-g", "-pthread", "-o", program, *files])
            return [program]
        if language == "go":
            go = tool("go", "/usr/local/go/bin/go")
            self.compile([go, "build", "-o", program, "."], cwd=source,
                         env={**os.environ, "CGO_ENABLED": "0", "GOFLAGS": "-mod=mod"})
            return [program]
        if language == "java":
            self.compile([tool("javac"), "-d", self.folder, source / "Service.java"])
            return [tool("java"), "-XX:+UseSerialGC", "-Xmx1500m",
                    "-Dsun.net.httpserver.nodelay=true", "-cp", str(self.folder),
                    "Service"]
        if language == "node":
            return [tool("node"), "--expose-gc", str(source / "service.js")]
        return [tool("python3"), str(source / f"{name}.py")]

    @staticmethod
    def compile(command, **options):
        """Runs a compiler. Raises Skipped with its messages if it fails."""
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False,
                              **options)
        if done.returncode:
            raise Skipped(f"{command[0]} failed: {done.stderr.strip()[:300]}")


def free_port():
    """A TCP port that nobody uses now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def request(port, path, seconds=20):
    """Sends one request on a connection of its own, which stays open and is returned."""
    connection = socket.create_connection(("127.0.0.1", port), seconds)
    connection.sendall(f"GET {path} HTTP/1.1\r\nHost: service\r\n\r\n".encode())
    return connection


def listens(port):
    """True if a local port accepts connections."""
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
        return True
    except OSError:
        return False


def start_service(command, mode, settings, errors, *, wrap=None, group=None,
                  nice=0):
    """Starts a service and waits until it accepts. Returns (process, port). Its stderr goes to the
    file `errors`, because a pipe could fill up under a fault."""
    port = free_port()
    command = [*command, mode, str(port)]
    environment = {**os.environ, **{name: str(value) for name, value in settings.items()}}
    with open(errors, "ab") as messages:
        process = start(wrap(command) if wrap else command, limit=LIMIT_SECONDS, group=group,
                        nice=nice, env=environment, stderr=messages)
    if not wait_until(lambda: listens(port) or process.poll() is not None, 30) \
            or process.poll() is not None:
        said = pathlib.Path(errors).read_text(errors="replace").strip()[-200:]
        raise OSError(f"the service does not start: {' '.join(command[:3])}: {said}")
    return process, port
