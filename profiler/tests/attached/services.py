"""The services as Debian or `go build` made them, each started on a free port with its data.

Does not contain faults.
"""
import http.server
import os
import pathlib
import pwd
import random
import shutil
import socket
import subprocess
import threading
import time

from clients import Http, HttpOnce, Memcached, Postgres, Redis
from process import end, start, wait_until

HERE = pathlib.Path(__file__).resolve().parent
LIMIT_SECONDS = 1800
BACKEND_SECONDS = 0.015


class Skipped(Exception):
    """The service is not installed; the text says how to get it."""


def tool(package, *places):
    for place in places:
        if found := shutil.which(place):
            return found
    raise Skipped(f"{places[0]} is missing: scripts/setup attached, or apt-get install {package}")


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


class Backend:
    """An HTTP service that is slow: the answer takes 15 ms."""

    def __init__(self):
        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            wbufsize = -1  # head and body in one segment

            def do_GET(self):
                time.sleep(BACKEND_SECONDS)
                self.send_response(200)
                self.send_header("Content-Length", "3")
                self.end_headers()
                self.wfile.write(b"42\n")

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.port = self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def stop(self):
        self.server.shutdown()
        self.server.server_close()


class Service:
    """A service; `pid` is the process that serves the requests of `connect`."""
    prefix = ()

    def __init__(self, folder, cpu=None):
        self.folder, self.port, self.backend = folder, free_port(), None
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        os.chmod(folder, 0o755)
        self.prefix = ["taskset", "-c", str(cpu)] if cpu is not None else []
        try:
            self.begin()
            self.fill()
        except BaseException:
            self.stop()
            raise

    def run(self, command, **options):
        with open(self.folder / "log", "ab") as log:
            self.process = start([*self.prefix, *map(str, command)], limit=LIMIT_SECONDS, stdout=log,
                                 stderr=log, **options)
        if not wait_until(self.listens, 30):
            log = (self.folder / "log").read_text(errors="replace")[-500:]
            raise OSError(f"{command[0]} does not listen: {log}")

    def listens(self):
        try:
            socket.create_connection(("127.0.0.1", self.port), 1).close()
        except OSError:
            return False
        return True

    @property
    def pid(self):
        return self.process.pid

    def fill(self):
        pass

    def stop(self):
        if process := getattr(self, "process", None):
            end(process)
        if self.backend:
            self.backend.stop()

    def version(self):
        raise NotImplementedError

    def recorded(self, _connection):
        """The process that serves a connection."""
        return self.pid


def first_line(*command):
    done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    return (done.stdout + done.stderr).strip().split("\n")[0]


class RedisService(Service):
    name, keys, members = "redis", 60_000, 30_000

    def begin(self):
        program = tool("redis-server", "redis-server")
        self.run([program, "--port", self.port, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"],
                 cwd=self.folder)

    def fill(self):
        random.seed(7)
        connection = Redis(self.port)
        for first in range(0, self.keys, 1000):
            connection.send(b"".join(Redis.command("SET", f"key:{number}", "x" * 64)
                                     for number in range(first, first + 1000)))
            for _ in range(1000):
                connection.reply()
        members = [str(random.random()) for _ in range(self.members)]
        for first in range(0, self.members, 1000):
            connection.ask("RPUSH", "list", *members[first:first + 1000])
        connection.close()

    def connect(self):
        return Redis(self.port)

    def version(self):
        return first_line("redis-server", "--version").split("v=")[1].split()[0]


NGINX = """\
daemon off;
worker_processes 1;
pid {folder}/pid;
error_log {folder}/error.log;
user {user};
events {{ worker_connections 1024; }}
http {{
    access_log off;
    keepalive_requests 100000000;
    client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi; uwsgi_temp_path {folder}/uwsgi; scgi_temp_path {folder}/scgi;
    server {{
        listen 127.0.0.1:{port};
        root {folder}/www;
        location /reports/ {{ gzip on; gzip_comp_level 9; gzip_types text/plain; default_type text/plain; }}
        location ~ ^/users/([a-z]+)+\\d$ {{ return 204; }}
        location /price {{ proxy_pass http://127.0.0.1:{backend}; }}
    }}
}}
"""


class NginxService(Service):
    name = "nginx"

    def begin(self):
        program = tool("nginx-light", "nginx", "/usr/sbin/nginx")
        self.backend = Backend()
        pages = self.folder / "www"
        (pages / "reports").mkdir(parents=True, exist_ok=True)
        (pages / "index.html").write_text("<p>well</p>\n" * 50)
        random.seed(7)
        words = [f"word{random.randrange(5000)}" for _ in range(6_000)]
        (pages / "reports/all.txt").write_text(" ".join(words))
        (self.folder / "conf").write_text(NGINX.format(
            folder=self.folder, port=self.port, backend=self.backend.port, user=pwd.getpwuid(os.geteuid()).pw_name))
        self.run([program, "-p", self.folder, "-c", self.folder / "conf"])

    @property
    def pid(self):
        """The worker: the first process only watches it."""
        children = pathlib.Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        return int(children.read_text().split()[0])

    def connect(self):
        return Http(self.port)

    def version(self):
        return first_line(tool("nginx-light", "nginx", "/usr/sbin/nginx"), "-v").rsplit("/", 1)[1]


class PostgresService(Service):
    name, rows = "postgres", 60_000

    def begin(self):
        programs = sorted(pathlib.Path("/usr/lib/postgresql").glob("*/bin"))
        if not programs:
            raise Skipped("PostgreSQL is missing: scripts/setup attached, or apt-get install postgresql")
        self.programs = programs[-1]
        data = self.folder / "data"
        user = pwd.getpwnam("postgres") if os.geteuid() == 0 else None
        # It refuses to run as root.
        as_user = []
        if user:
            os.chown(self.folder, user.pw_uid, user.pw_gid)
            as_user = ["setpriv", f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups", "--pdeathsig=KILL"]
        subprocess.run([*as_user, self.programs / "initdb", "-D", data, "-A", "trust", "-U", "postgres", "-N"],
                       check=True, capture_output=True, timeout=120, cwd=self.folder)
        self.run([*as_user, self.programs / "postgres", "-D", data, "-p", self.port, "-k", self.folder,
                  "-h", "127.0.0.1"], cwd=self.folder)

    def listens(self):
        try:
            Postgres(self.port).close()
        except OSError:
            return False
        return True

    def fill(self):
        connection = Postgres(self.port)
        for text in ("CREATE TABLE goods (id int PRIMARY KEY, name text, stock int)",
                     f"INSERT INTO goods SELECT n, 'article ' || md5(n::text), 10 FROM generate_series(1, {self.rows}) n",
                     "VACUUM ANALYZE goods"):
            connection.ask(text)
        connection.close()

    def connect(self):
        connection = Postgres(self.port)
        connection.process = int(connection.ask("SELECT pg_backend_pid()")[0])
        return connection

    def recorded(self, connection):
        return connection.process

    def version(self):
        return first_line(self.programs / "postgres", "--version").split()[2]


class MemcachedService(Service):
    name, items, pages = "memcached", 60_000, 40

    def begin(self):
        self.program = program = tool("memcached", "memcached")
        as_root = ["-u", "root"] if os.geteuid() == 0 else []
        self.run([program, "-p", self.port, "-U", 0, "-l", "127.0.0.1", "-m", 512, *as_root])

    def fill(self):
        connection = Memcached(self.port)
        for first in range(0, self.items, 1000):
            connection.send(b"".join(b"set key:%d 0 0 64 noreply\r\n%s\r\n" % (number, b"x" * 64)
                                     for number in range(first, first + 1000)))
        for number in range(self.pages):
            connection.ask(b"set page:%d 0 0 500000\r\n%s\r\n" % (number, b"y" * 500_000), b"STORED\r\n")
        # Every key is stored now, and this one tells the class of its size.
        statistics = connection.ask(b"stats items\r\n").decode()
        classes = [line.split() for line in statistics.split("\r\n") if ":number " in line]
        self.slab = max(classes, key=lambda words: int(words[2]))[1].split(":")[1]
        connection.close()

    def connect(self):
        return Memcached(self.port)

    def version(self):
        return first_line("memcached", "-V").split()[1]


class GoService(Service):
    name, flags = "go", []

    def begin(self):
        go = tool("golang-go", "go", "/usr/local/go/bin/go")
        self.backend = Backend()
        program = self.folder / "service"
        done = subprocess.run([go, "build", *self.flags, "-o", program, "."], cwd=HERE / "go", capture_output=True, text=True,
                              timeout=600, env={**os.environ, "CGO_ENABLED": "0"}, check=False)
        if done.returncode:
            raise OSError(f"go build: {done.stderr[-500:]}")
        self.run([program, self.port, f"http://127.0.0.1:{self.backend.port}/"])

    def connect(self):
        return Http(self.port)

    def version(self):
        return first_line(tool("golang-go", "go", "/usr/local/go/bin/go"), "version").split()[2]


class StrippedGoService(GoService):
    name, flags = "go-stripped", ["-ldflags=-s -w"]


class NodeService(Service):
    name = "node"

    def begin(self):
        # The option that its documentation names for profilers: names of compiled code in /tmp.
        # It leaves a log in its working folder, too.
        self.run([tool("nodejs", "node"), "--perf-basic-prof", HERE / "node/service.js", self.port], cwd=self.folder)

    def connect(self):
        return Http(self.port)

    def stop(self):
        super().stop()
        pathlib.Path(f"/tmp/perf-{self.pid}.map").unlink(missing_ok=True)

    def version(self):
        return first_line("node", "--version").lstrip("v")


class ForkingService(Service):
    name = "forking"

    def begin(self):
        program = self.folder / "service"
        subprocess.run([tool("gcc", "cc"), "-O2", "-o", program, HERE / "forking.c"], check=True, timeout=60)
        self.run([program, self.port])

    def connect(self):
        return HttpOnce(self.port)

    def version(self):
        return first_line("cc", "--version").split()[-1]


KINDS = (RedisService, NginxService, PostgresService, MemcachedService, GoService, StrippedGoService,
         NodeService, ForkingService)
SERVICES = {kind.name: kind for kind in KINDS}
