"""A shop's price service on ThreadingHTTPServer. Usage: threads.py MODE PORT.

With WORKERS=N in the environment a pool of N threads serves the connections, each until it ends.
"""
import gc
import json
import os
import queue
import socket
import sys
import threading
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, HTTPServer, ThreadingHTTPServer

MODE, PORT = sys.argv[1], int(sys.argv[2])
COST_MS = float(os.environ.get("COST_MS", "1"))
STOCK = threading.Lock()
NEWS = threading.Event()
ONCE = threading.Lock()
JOURNALS: queue.SimpleQueue = queue.SimpleQueue()


def burn(ms):
    """By the thread's own CPU clock: the cost is the same on a busy machine."""
    end = time.thread_time() + ms / 1000
    total = 0
    while time.thread_time() < end:
        total += sum(i * i for i in range(200))
    return total


def journal():
    """A write that is only answered when it is on the disk."""
    file = JOURNALS.get()
    try:
        os.pwrite(file, os.urandom(4096), 0)
        os.fdatasync(file)
    finally:
        JOURNALS.put(file)


def collect():
    """A heap of some million objects, collected in full from time to time."""
    gc.disable()
    heap = [{"id": i, "tags": [i]} for i in range(int(os.environ.get("OBJECTS", "1500000")))]
    while True:
        gc.collect()
        time.sleep(float(os.environ.get("BETWEEN_MS", "300")) / 1000)
        heap[0]["id"] += 1


def work():
    if MODE == "lock":
        with STOCK:
            time.sleep(COST_MS / 1000)
    elif MODE == "lock-busy":
        with STOCK:
            burn(COST_MS)
    elif MODE == "disk":
        journal()
    elif MODE == "downstream":
        with urllib.request.urlopen(f"http://{os.environ['BACKEND']}/price") as answer:
            answer.read()
        burn(float(os.environ.get("BURN_MS", "0.1")))
    elif MODE == "dns":
        try:
            socket.getaddrinfo(os.environ["NAME"], 80, socket.AF_INET, socket.SOCK_STREAM)
        except OSError:
            pass
    else:
        burn(COST_MS)


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1

    def do_GET(self):
        body = json.dumps({"path": self.path, "price": 7 * len(self.path)}).encode()
        if self.path == "/large":
            body = b"x" * (4 << 20)
        elif self.path == "/poll":
            NEWS.wait(30)
        elif self.path == "/collect":
            if ONCE.acquire(blocking=False):
                threading.Thread(target=collect, daemon=True).start()
        else:
            work()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
        self.wfile.flush()

    def log_message(self, *_):
        pass


class PoolServer(HTTPServer):
    """The accept loop waits for a free worker before it accepts again."""

    def __init__(self, address, handler, workers):
        super().__init__(address, handler)
        self.pool = ThreadPoolExecutor(workers)
        self.free = threading.Semaphore(workers)

    def get_request(self):
        self.free.acquire()
        return super().get_request()

    def process_request(self, request, client_address):
        self.pool.submit(self.serve, request, client_address)

    def serve(self, request, client_address):
        try:
            self.finish_request(request, client_address)
        finally:
            self.shutdown_request(request)
            self.free.release()


def main():
    ThreadingHTTPServer.request_queue_size = HTTPServer.request_queue_size = 1024
    ThreadingHTTPServer.daemon_threads = True
    if MODE == "disk":
        for i in range(64):
            path = f"{os.environ['DATA']}/journal-{i}"
            JOURNALS.put(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
    if MODE == "idle-threads":
        waiting = ThreadPoolExecutor(100)
        for _ in range(100):
            waiting.submit(time.sleep, 0.2)
    workers = int(os.environ.get("WORKERS", "0"))
    address = ("127.0.0.1", PORT)
    server = PoolServer(address, Handler, workers) if workers else ThreadingHTTPServer(
        address, Handler)
    server.serve_forever()


main()
