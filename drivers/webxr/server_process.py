"""The process that serves the page: https, a WebSocket and a thread for each; reports through shared
memory."""

import hmac
import http
import ssl
import sys
import threading
import time
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import msgspec
from websockets.datastructures import Headers
from websockets.exceptions import ConnectionClosed
from websockets.http11 import Request, Response
from websockets.sync.server import ServerConnection, serve

from drivers.child import SLOT, LifeLine, Newest
from drivers.webxr.control_lock import ControlLock
from drivers.webxr.messages import MAX_BYTES, Config, Report, RunStatus
from robot_runtime.quiet import quiet_logger

PAGE = Path(__file__).with_name("page.html")
_POLICY = (
    "default-src 'self' 'unsafe-inline'; connect-src 'self' ws: wss:; img-src data:; frame-ancestors 'none'"
)
_PERIOD_S = 0.002
_STATUS_S = 0.5
_RUN = ("mode", "cause", "led", "episode", "refused")
"""The fields of the run's state that the page gets."""


class Pages:
    """Serves the pages."""

    def __init__(self, config: Config, lock: ControlLock, status: Newest[RunStatus]) -> None:
        self._token, self._lock, self._status = config.token, lock, status
        self._html = PAGE.read_bytes()

    def request(self, connection: ServerConnection, request: Request) -> Response | None:
        """Serve the page to clients that know the token. None: a WebSocket may be opened."""
        url = urlsplit(request.path)
        given = (parse_qs(url.query).get("token") or [""])[0]
        if not hmac.compare_digest(given.encode(), self._token.encode()):
            return connection.respond(http.HTTPStatus.FORBIDDEN, "the address lacks its token\n")
        if url.path == "/ws":
            return None
        if url.path != "/":
            return connection.respond(http.HTTPStatus.NOT_FOUND, "there is one page, /\n")
        headers = Headers(
            {
                "Content-Type": "text/html; charset=utf-8",
                "Content-Length": str(len(self._html)),
                "Cache-Control": "no-store",
                "Referrer-Policy": "no-referrer",
                "Content-Security-Policy": _POLICY,
                "Connection": "close",
            }
        )
        return Response(200, "OK", headers, self._html)

    def talk(self, connection: ServerConnection) -> None:
        """Serve one page, until it goes."""
        page, name = object(), str(connection.remote_address[0])
        try:
            while holder := self._lock.take(page, name):
                self._say(connection, {"leads": False, "holder": holder})
                text = connection.recv()  # it asks again, or sends a stop, which any page may
                if text != "hello":
                    self._lock.say(page, text, time.monotonic_ns())
            self._listen(connection, page)
        except (ConnectionClosed, TimeoutError):
            pass
        finally:
            self._lock.leave(page)

    def _listen(self, connection: ServerConnection, page: object) -> None:
        next_s = 0.0
        while True:
            if time.monotonic() >= next_s:
                next_s = time.monotonic() + _STATUS_S
                status = self._status.get()
                parts = RunStatus() if status is None else status[1]
                report = self._lock.report
                reply = {"parts": parts.parts, "bases": parts.bases, "dropped": report.num_dropped}
                reply["run"] = {each: getattr(parts, each) for each in _RUN}
                self._say(connection, {"leads": True, **reply})
            try:
                text = connection.recv(timeout=_STATUS_S)
            except TimeoutError:
                continue
            if text == "hello":
                continue
            why = self._lock.say(page, text, time.monotonic_ns())
            if why and why != "too late":
                self._say(connection, {"leads": True, "refused": why[:200]})

    def _say(self, connection: ServerConnection, what: dict) -> None:
        connection.send(msgspec.json.encode(what).decode())


def main(text: str, descriptor: str) -> None:
    """config: a `Config` as JSON; descriptor: of the memory shared with the parent."""
    config = msgspec.json.decode(text, type=Config)
    status, reports = Newest(RunStatus, int(descriptor)), Newest(Report, int(descriptor), 2 * SLOT)
    lock, alive = ControlLock(stale_ns=round(config.stale_ms * 1e6)), LifeLine()
    pages = Pages(config, lock, status)
    context = None
    if config.certificate:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(config.certificate, config.key)
    try:
        server = serve(
            pages.talk,
            config.host,
            config.port,
            ssl=context,
            process_request=pages.request,
            max_size=MAX_BYTES,
            compression=None,
            ping_interval=1.0,
            ping_timeout=3.0,
            logger=quiet_logger(__name__),
        )
    except OSError as error:
        sys.stdout.write(f"{config.host} port {config.port} cannot be served: {error.strerror}\n")
        sys.exit(1)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    sys.stdout.write(f"{server.socket.getsockname()[1]}\n")
    sys.stdout.flush()
    before: Report | None = None
    while not alive.is_cut():
        if lock.report is not before:
            before = lock.report
            reports.put(before)
        time.sleep(_PERIOD_S)
