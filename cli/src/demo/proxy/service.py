"""The service of `leeward demo --proxy`: threads, a fixed amount of work per request, and no
overload control. Prints its port, and ends when its input ends. Does not contain a queue."""

import os
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    # Head and body leave in one segment.
    wbufsize = -1
    disable_nagle_algorithm = True

    def do_GET(self):
        body = b"%d\n" % sum(number * number for number in range(30_000))
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


def end_with_input():
    sys.stdin.read()
    os._exit(0)


threading.Thread(target=end_with_input, daemon=True).start()
ThreadingHTTPServer.request_queue_size = 1024
ThreadingHTTPServer.daemon_threads = True
server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
# Errors of connections that the demo ends are no news.
server.handle_error = lambda *_: None
print(server.server_port, flush=True)
server.serve_forever()
