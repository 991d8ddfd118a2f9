"""A server's page over HTTP: `StatusServer`. Read-only, without any controls.

On loopback it needs no token; elsewhere the one in the address it prints (`page.guard`).
"""

import json
import socket
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler
from importlib.resources import files
from urllib.parse import urlsplit

from robot_runtime.errors import InvalidValueError
from robot_runtime.page.guard import Guard, is_loopback
from robot_runtime.server.bounded_http import TIMEOUT_S, BoundedServer, HttpService
from robot_runtime.server.server_metrics import ServerMetrics
from robot_runtime.server.status import status_of

_FILES = {
    "/": ("server.html", "text/html; charset=utf-8"),
    "/server.css": ("server.css", "text/css"),
    "/server.js": ("server.js", "text/javascript"),
}
_POLICY = "default-src 'self'; img-src 'self' data:; frame-ancestors 'none'; base-uri 'none'"


class StatusServer(HttpService):
    """Answers from threads of its own; a context manager. Up before the policy is warm."""

    def __init__(self, host: str, port: int, metrics: Mapping[str, ServerMetrics]) -> None:
        """
        port: 0 picks a free one. InvalidValueError: it cannot be listened on.
        metrics: by policy name; policies may be added later.
        """
        try:
            server = BoundedServer((host, port), _Handler)
        except (OSError, OverflowError) as error:
            raise InvalidValueError(f"no page can be shown at {host}:{port}: {error}") from error
        server.metrics = metrics  # type: ignore[attr-defined]
        server.guard = self.guard = Guard.at(host, number := server.server_address[1])  # type: ignore[attr-defined]
        shown = host if is_loopback(host) else socket.gethostname()
        shown = f"[{shown}]" if ":" in shown else shown
        query = "" if self.guard.token is None else f"?token={self.guard.token}"
        self.url = f"http://{shown}:{number}/{query}"
        """The address that a browser opens."""
        super().__init__(server, "status")


class _Handler(BaseHTTPRequestHandler):
    timeout = TIMEOUT_S

    def do_GET(self) -> None:
        guard: Guard = self.server.guard  # type: ignore[attr-defined]
        headers = {name.lower(): value for name, value in self.headers.items()}
        if why := guard.complaint(self.path, headers):
            self._answer(403, f"{why}\n".encode(), "text/plain; charset=utf-8")
            return
        path = urlsplit(self.path).path
        if path == "/" and guard.token is not None and guard.in_target(self.path):
            self._answer(303, b"", "text/plain", {"Location": "/", "Set-Cookie": guard.set_cookie()})
        elif path == "/status.json":
            status = status_of(self.server.metrics)  # type: ignore[attr-defined]
            self._answer(200, json.dumps(status).encode(), "application/json")
        elif path in _FILES:
            name, kind = _FILES[path]
            content = (files("robot_runtime.server") / "static" / name).read_bytes()
            self._answer(200, content, kind)
        else:
            self._answer(404, b"there are / and /status.json\n", "text/plain")

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing: no line per request."""

    def _answer(self, status: int, body: bytes, kind: str, more: Mapping[str, str] | None = None) -> None:
        self.send_response(status)
        head = {
            "Content-Type": kind,
            "Content-Length": str(len(body)),
            "Cache-Control": "no-store",
            "X-Content-Type-Options": "nosniff",
            "Content-Security-Policy": _POLICY,
            **(more or {}),
        }
        for name, value in head.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)
