"""HTTP with a thread for each of the newest connections: `BoundedServer`, and `HttpService` that runs one."""

import sys
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socket import SHUT_RDWR, socket
from threading import Lock, Thread
from types import TracebackType
from typing import Any, Self

MAX_CONNECTIONS = 64
"""Beyond that the oldest connection is closed: new requests get an answer, however many only listen."""
TIMEOUT_S = 5.0
"""Timeout of a connection that never sends."""


class BoundedServer(ThreadingHTTPServer):
    """Serves each of the newest connections in a thread."""

    daemon_threads = True
    request_queue_size = 128  # with the usual five, a sixth at once would retry a second later

    def __init__(self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler]) -> None:
        self._open: dict[int, socket] = {}  # by number, the oldest first
        self._lock = Lock()
        super().__init__(address, handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._lock:
            self._open[id(request)] = request
            if len(self._open) > MAX_CONNECTIONS:
                with suppress(OSError):  # its thread notices that it has ended, and closes it
                    self._open.pop(next(iter(self._open))).shutdown(SHUT_RDWR)
        super().process_request(request, client_address)

    def close_request(self, request: Any) -> None:
        with self._lock:
            self._open.pop(id(request), None)
            super().close_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exception(), OSError):  # no trace for every connection that ends
            super().handle_error(request, client_address)


class HttpService:
    """Base of HTTP services with a `BoundedServer`: it answers from a thread of its own inside the
    context."""

    def __init__(self, server: BoundedServer, name: str) -> None:
        """name: of the thread."""
        self._server = server
        self._thread = Thread(target=server.serve_forever, name=name, daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
