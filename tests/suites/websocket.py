"""Autobahn's cases for WebSocket, of servers and of clients. Does not contain settings."""

import json
import subprocess

from programs import HERE, find, free_port

# Framing, pings, reserved bits, opcodes, fragments, UTF-8 and closing.
QUICK = "1.*,2.*,3.*,4.*,5.*,6.*,7.*,10.*"
# Large messages and compression take minutes.
FULL = QUICK + ",9.*,12.1.*,12.2.*,13.1.*"


def results_of(text):
    """Reasons of failure by case; empty: passed."""
    good = {"OK", "NON-STRICT", "INFORMATIONAL"}
    return {case: "" if good.issuperset(how) else " / ".join(how) for case, how in json.loads(text).items()}


def echo_server(programs):
    port = free_port()
    return programs.start([find("python"), HERE / "websocket_server.py", port], port)


def ask_server(port, cases):
    """Cases as a client, of a server that sends everything back."""
    command = [find("python"), HERE / "websocket_cases.py", "server", f"ws://127.0.0.1:{port}", cases]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=1200)
    if done.returncode != 0:
        raise RuntimeError(f"{command[1]} ended with {done.returncode}: {done.stderr[-500:]}")
    return results_of(done.stdout)


def serve_client(cases, through):
    """Cases as a server, of a client at the port that `through` makes of the server's."""
    command = [find("python"), HERE / "websocket_cases.py", "client", cases]
    server = subprocess.Popen(list(map(str, command)), stdout=subprocess.PIPE, text=True)
    try:
        port = through(int(server.stdout.readline()))
        client = [find("python"), HERE / "websocket_client.py", port]
        done = subprocess.run(list(map(str, client)), capture_output=True, text=True, timeout=1200)
        if done.returncode != 0:
            raise RuntimeError(f"{command[1]} ended with {done.returncode}: {done.stderr[-500:]}")
        return results_of(server.communicate(timeout=60)[0])
    finally:
        server.kill()
        server.wait()
