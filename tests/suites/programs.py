"""Programs of the suites: where they are, how they start and end, and the proxy's settings.

Does not contain suites.
"""

import os
import shutil
import socket
import subprocess
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CLIENTS = ROOT / "target" / "clients"
# Python with the packages of requirements.txt.
PYTHON = ROOT / "target" / "suites" / "python" / "bin" / "python"
HERE = Path(__file__).resolve().parent


class Missing(Exception):
    """A program is not installed."""


def find(name):
    """Path of a program of `scripts/setup suites`, or of the system."""
    for path in (CLIENTS / name, PYTHON if name == "python" else CLIENTS / name / name.rsplit("-", 1)[-1]):
        if path.is_file():
            return str(path)
    found = None if name == "python" else shutil.which(name) or shutil.which(f"/usr/sbin/{name}")
    if not found:
        raise Missing(f"{name} is not installed (scripts/setup suites)")
    return found


def free_port():
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return sock.getsockname()[1]


def connect(port):
    """Connects to a port, or to the path of a Unix socket."""
    if isinstance(port, int):
        socket.create_connection(("127.0.0.1", port), 5).close()
    else:
        with socket.socket(socket.AF_UNIX) as sock:
            sock.connect(str(port))


class Programs:
    """Processes that end with a suite."""

    def __init__(self, leeward, folder):
        self.leeward, self.folder, self.processes = leeward, folder, []

    def start(self, command, port, env=None):
        """Starts a program, and waits until it listens at a port or a Unix socket."""
        # Each has a group of its own, so that children of it end, too.
        log = open(self.folder / f"log-{len(self.processes)}", "w+b")
        process = subprocess.Popen(
            list(map(str, command)), stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
            env={**os.environ, **(env or {})},
        )
        self.processes.append(process)
        for _ in range(600):
            try:
                connect(port)
                return port
            except OSError:
                if process.poll() is not None:
                    break
                time.sleep(0.05)
        log.seek(0)
        raise RuntimeError(f"{command[0]} does not listen: {log.read().decode(errors='replace')[-500:]}")

    def service(self):
        """The service on net/http; returns its port."""
        port = free_port()
        return self.start([find("suites-service"), f"127.0.0.1:{port}"], port)

    def proxy(self, to, more="", port=None, listens=None):
        """The proxy in front of an address; returns its port. `more`: further settings; `listens`:
        a port of its that shows that it runs, if it is not the first one.
        """
        port = port or free_port()
        config = self.folder / f"proxy-{port}.toml"
        config.write_text(f'slo = "20s"\nlisten = "127.0.0.1:{port}"\nto = ["{to}"]\nthreads = 2\n{more}')
        checked = subprocess.run(
            [self.leeward, "proxy", "--config", str(config), "--check"], capture_output=True, text=True, timeout=60
        )
        if checked.returncode != 0:
            raise RuntimeError("the proxy refuses its settings: " + checked.stderr.strip().splitlines()[-1])
        self.start([self.leeward, "proxy", "--config", config], listens or port)
        return port

    def certificate(self):
        """A certificate for `localhost` and its key, which signs itself."""
        certificate, key = self.folder / "certificate.pem", self.folder / "key.pem"
        if not certificate.exists():
            command = [
                find("openssl"), "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
                "-days", "2", "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1",
                "-addext", "basicConstraints=critical,CA:FALSE", "-keyout", str(key), "-out", str(certificate),
            ]
            subprocess.run(command, check=True, capture_output=True, timeout=60)
        return certificate, key

    def tls(self):
        """Settings of TLS, and the certificate that clients trust."""
        certificate, key = self.certificate()
        return f'[tls]\ncertificate = "{certificate}"\nkey = "{key}"\n', certificate

    def stop(self):
        for process in self.processes:
            try:
                os.killpg(process.pid, 15)
            except ProcessLookupError:
                pass
        for process in self.processes:
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, 9)
                process.wait()
        self.processes.clear()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()
