"""A server's page over HTTP: `StatusServer`. Read-only, without any controls.

On loopback it needs no token; elsewhere the one in the address it prints (`page.guard`).
"""

import json
import socket
import sys
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler
from importlib.resources import files
from itertools import accumulate
from typing import Any
from urllib.parse import urlsplit

from robot_runtime.errors import InvalidValueError
from robot_runtime.page.guard import Guard, is_loopback
from robot_runtime.server.bounded_http import TIMEOUT_S, BoundedServer, HttpService
from robot_runtime.server.server_metrics import Histogram, ServerMetrics

NS_PER_MS = 1_000_000


def status_of(metrics: Mapping[str, ServerMetrics]) -> dict[str, Any]:
    """metrics: by policy name."""
    return {"policies": [_policy(name, each) for name, each in metrics.items()], "gpus": gpus()}


def _policy(name: str, metrics: ServerMetrics) -> dict[str, Any]:
    return {
        "name": name,
        "is_ready": metrics.is_ready,
        "warm": {
            "samplers": list(metrics.warm),
            "max_batch": metrics.max_batch,
            "pieces_left": metrics.pieces_to_warm,
        },
        "waiting": metrics.waiting,
        "robots": [
            {
                "name": robot.name,
                "silent_ms": robot.silent_ns // NS_PER_MS,
                "num_answered": robot.num_answered,
                "requests": [
                    {
                        "waited_ms": request.waited_ns // NS_PER_MS,
                        "left_ms": request.left_ns // NS_PER_MS,
                        "is_running": request.is_running,
                    }
                    for request in robot.requests
                ],
            }
            for robot in metrics.robots
        ],
        "requests": dict(metrics.requests),
        "turned_away": dict(metrics.turned_away),
        "rows_sent": metrics.rows_sent,
        "rows_unwanted": metrics.rows_unwanted,
        "bytes_received": metrics.bytes_received,
        "bytes_sent": metrics.bytes_sent,
        "batch_sizes": _sizes(metrics.batch_size),
        "queue_ms": _quantiles(metrics.queue_s),
        "first_rows_ms": _quantiles(metrics.first_rows_s),
        "infer_ms": _quantiles(metrics.infer_s),
    }


def _sizes(histogram: Histogram) -> list[tuple[str, int]]:
    """Bounds, as texts, and how many batches fall into each."""
    return list(zip((*map(str, histogram.bounds), "more"), histogram.counts, strict=True))


def _quantiles(histogram: Histogram) -> dict[str, float] | None:
    """The bounds below which half and 95 % of the values lie [ms]; None: there are none."""
    total = sum(histogram.counts)
    if not total:
        return None
    bounds = [1e3 * bound for bound in (*histogram.bounds, histogram.bounds[-1])]
    below = list(accumulate(histogram.counts))
    at = {
        name: next(bound for bound, count in zip(bounds, below, strict=True) if count >= share * total)
        for name, share in (("p50", 0.5), ("p95", 0.95))
    }
    return {**at, "mean": 1e3 * histogram.sum / total}


def gpus() -> list[dict[str, Any]]:
    """Memory of each GPU that this process uses; none without one."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_available() or not torch.cuda.is_initialized():
        return []
    out = []
    for i in range(torch.cuda.device_count()):
        free, total = torch.cuda.mem_get_info(i)
        name = torch.cuda.get_device_name(i)
        out.append({"name": name, "used_bytes": total - free, "total_bytes": total})
    return out


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
