"""A folder served over HTTP by a thread, with faults to order, and the requests it got."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Literal

Fault = Literal["cut", "corrupted", "unavailable", "forbidden"]


@dataclass
class HttpFolder:
    """``faults[path]`` are used up one a request; then the file is served as it is."""

    folder: Path
    url: str = ""
    faults: dict[str, list[Fault]] = field(default_factory=dict)
    requests: Counter[str] = field(default_factory=Counter)


@contextmanager
def served(folder: Path) -> Iterator[HttpFolder]:
    """Serve ``folder`` while the context is open."""
    state = HttpFolder(folder)

    class Handler(BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            self._answer(with_body=False)

        def do_GET(self) -> None:
            state.requests[self.path.lstrip("/")] += 1
            self._answer(with_body=True)

        def _answer(self, *, with_body: bool) -> None:
            path = self.path.lstrip("/")
            faults = state.faults.get(path, [])
            fault = faults.pop(0) if with_body and faults else None
            if fault in ("unavailable", "forbidden"):
                self.send_error(503 if fault == "unavailable" else 403)
                return
            if not (folder / path).is_file():
                self.send_error(404)
                return
            content = (folder / path).read_bytes()
            self.send_response(200)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            if with_body:
                if fault == "corrupted":
                    content = bytes([content[0] ^ 1]) + content[1:]
                self.wfile.write(content[: len(content) // 2] if fault == "cut" else content)

        def log_message(self, *_: object) -> None:
            return None

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    state.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield state
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
