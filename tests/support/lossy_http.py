"""A server before another one: it forwards requests, and may lose responses or give responses of its own."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

_NOT_FORWARDED = {"transfer-encoding", "connection", "date", "server", "content-length"}


@dataclass
class Fault:
    status: int | None
    """None: the connection is closed without a response."""
    body: bytes = b""
    is_forwarded: bool = True
    """Whether the request is carried out all the same."""


Choose = Callable[[str, str], Fault | None]
"""By method and path; None: the response is that of the other server."""


@dataclass
class LossyHttp:
    target: str
    choose: Choose = lambda _method, _path: None
    url: str = ""
    requests: list[tuple[str, str]] = field(default_factory=list)

    def once(self, method: str, fault: Fault) -> None:
        """The fault is that of the next request with this method."""
        left = [fault]
        self.choose = lambda which, _path: left.pop() if left and which == method else None


@contextlib.contextmanager
def lossy_http(target: str) -> Iterator[LossyHttp]:
    lossy = LossyHttp(target)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def handle_one_request(self) -> None:
            self.raw_requestline = self.rfile.readline()
            if not self.raw_requestline or not self.parse_request():
                self.close_connection = True
                return
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            lossy.requests.append((self.command, self.path))
            fault = lossy.choose(self.command, self.path)
            if fault is None or fault.is_forwarded:
                response = _forward(target, self.command, self.path, dict(self.headers), body)
            if fault is None:
                self._answer(*response)
            elif fault.status is None:
                self.close_connection = True
            else:
                self._answer(fault.status, {}, fault.body)

        def _answer(self, status: int, headers: dict[str, str], body: bytes) -> None:
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            if self.command != "HEAD":
                self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """`requests` has them."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    lossy.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield lossy
    finally:
        server.shutdown()
        server.server_close()


def _forward(
    target: str, method: str, path: str, headers: dict[str, str], body: bytes
) -> tuple[int, dict[str, str], bytes]:
    connection = HTTPConnection(urlsplit(target).netloc, timeout=30)
    try:
        connection.request(method, path, body, headers)
        response = connection.getresponse()
        answer = response.read()
        kept = {name: value for name, value in response.getheaders() if name.lower() not in _NOT_FORWARDED}
        if method == "HEAD" and (length := response.getheader("Content-Length")) is not None:
            kept["Content-Length"] = length
        return response.status, kept, answer
    finally:
        connection.close()
