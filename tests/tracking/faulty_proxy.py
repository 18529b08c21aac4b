"""An HTTP proxy before a server, that behaves as badly as it is told to."""

import http.client
import http.server
import itertools
import socket
import struct
import threading
import time
from collections import Counter

DELAY_S = 10.0
MODES = ("pass", "drop", "error", "error after", "cut", "delay")


class FaultyProxy(http.server.ThreadingHTTPServer):
    """``mode`` is one of MODES; ``seen`` counts requests by it."""

    daemon_threads = True

    def __init__(self, target_port):
        super().__init__(("127.0.0.1", 0), Handler)
        self.target_port = target_port
        self.uri = f"http://127.0.0.1:{self.server_port}"
        self.mode = "pass"
        self.seen = Counter()
        self.stopped = threading.Event()
        threading.Thread(target=self.serve_forever, args=(0.05,), daemon=True).start()

    def take_turns(self, turns):
        """Change the mode over and over until ``stopped``: ``turns`` is [(mode, seconds), ...], but no turn ends unseen."""

        def turn():
            for mode, seconds in itertools.cycle(turns):
                self.mode, before = mode, self.seen[mode]
                self.stopped.wait(seconds)
                while self.seen[mode] == before and not self.stopped.wait(0.05):
                    pass
                if self.stopped.is_set():
                    break
            self.mode = "pass"

        self.stopped.clear()
        thread = threading.Thread(target=turn, daemon=True)
        thread.start()
        return thread

    def handle_error(self, request, client_address):
        pass  # a client that gave up


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def forward(self):
        proxy, mode = self.server, self.server.mode
        proxy.seen[mode] += 1
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if mode == "drop":
            return self.hang_up()
        if mode == "error":
            return self.answer(500, {}, b'{"error_code": "INTERNAL_ERROR"}')
        if mode == "delay":
            time.sleep(DELAY_S)
        there = http.client.HTTPConnection("127.0.0.1", proxy.target_port, timeout=60)
        headers = {name: value for name, value in self.headers.items() if name.lower() not in ("host", "connection")}
        there.request(self.command, self.path, body, headers)
        found = there.getresponse()
        content = found.read()
        there.close()
        if mode == "error after":  # done, and said not to be
            return self.answer(500, {}, b'{"error_code": "INTERNAL_ERROR"}')
        kept = {name: value for name, value in found.getheaders() if name.lower() in ("content-type",)}
        return self.answer(found.status, kept, content, cut=mode == "cut")

    def answer(self, status, headers, content, *, cut=False):
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content) + (1 if cut else 0)))
        self.end_headers()
        self.wfile.write(content[: len(content) // 2] if cut else content)
        if cut:
            self.hang_up()

    def hang_up(self):
        self.close_connection = True
        # A reset, as a machine gives that has forgotten the connection.
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.connection.close()

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = forward  # noqa: N815 (the names http.server asks for)

    def log_message(self, *_):
        pass
