"""The page's own server: its files, the feed of what is shown, orders back, and a proxy to viser's scene.

    /            the page                 /feed     websocket: the view ─►  ◄─ orders
    /scene/      viser's client           /scene    websocket, proxied to viser, which is on loopback

A task per browser sends it the newest view; a browser that is slow or asleep misses those in between.
"""

import asyncio
import gzip
import socket
from collections.abc import Coroutine
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import replace
from http import HTTPStatus
from importlib.resources import files
from pathlib import Path
from threading import Thread
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlsplit

import msgspec
from websockets.asyncio.client import connect
from websockets.asyncio.connection import Connection
from websockets.asyncio.server import ServerConnection, serve
from websockets.datastructures import Headers
from websockets.exceptions import ConnectionClosed
from websockets.http11 import Request, Response

from robot_runtime.core.orders import Order
from robot_runtime.errors import InvalidValueError
from robot_runtime.page.guard import Guard, is_loopback
from robot_runtime.page.scene import SECRET_HEADER, Scene
from robot_runtime.page.source import Player, Source
from robot_runtime.quiet import quiet_logger

VIEWS_HZ = 15.0
_CLOSE_S = 0.5
"""How long a browser may take to close: one that sleeps must not keep a run from ending."""
_MAX_HEARD = 65_536
"""Maximum size of a message from a browser [bytes]."""
_SCENE_STYLE = "<style>.mantine-Paper-root,.mantine-Notification-root{display:none!important}</style>"
"""Hides viser's own panel, which is empty here, and its warnings, which cover the robot."""
_KINDS = {".html": "text/html", ".css": "text/css", ".js": "text/javascript"}
_POLICY = (
    "default-src 'self'; img-src 'self' blob: data:; style-src 'self' 'unsafe-inline'; "
    "frame-ancestors 'none'; base-uri 'none'"
)


_HEARD = msgspec.json.Decoder(Order | Player)


class PageServer:
    """A server with a thread of its own; a context manager."""

    def __init__(
        self,
        host: str,
        port: int,
        source: Source,
        scene: Scene | None,
        *,
        index: str = "index.html",
        token: str | None = None,
    ) -> None:
        """
        port: 0 picks a free one. scene: None: nothing is shown in 3D.
        index: the file in `static` that / serves.
        token: that a browser has to present; None: one is made where other machines can reach the server.
        """
        self._host, self._source, self._scene = host, source, scene
        self._files = _own_files(index) | ({} if scene is None else {"/scene/": _scene_page()})
        self._sockets = ("/feed",) if scene is None else ("/feed", "/scene")
        self._token = token
        self._loop = asyncio.new_event_loop()
        self._ends = asyncio.Event()
        self._started: Future[None] = Future()
        self._thread = Thread(target=self._run, name="page", daemon=True)
        self.port = port
        """The port it listens at, once entered."""
        self.guard = Guard.at(host, port)

    def start(self) -> Self:
        """OSError: it cannot listen there."""
        self._thread.start()
        self._started.result()
        return self

    def __enter__(self) -> Self:
        return self if self._thread.is_alive() else self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loop.call_soon_threadsafe(self._ends.set)
        self._thread.join(timeout=5.0)

    @property
    def url(self) -> str:
        """The address that a browser on this machine opens."""
        host = self._host if is_loopback(self._host) else socket.gethostname()
        shown = f"[{host}]" if ":" in host else host
        query = "" if self.guard.token is None else f"?token={self.guard.token}"
        return f"http://{shown}:{self.port}/{query}"

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_until_complete(self._serve())
        except BaseException as error:
            if self._started.done():
                raise
            self._started.set_exception(error)
        finally:
            left = asyncio.all_tasks(self._loop)
            for task in left:
                task.cancel()
            self._loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
            self._loop.close()

    async def _serve(self) -> None:
        server = await serve(
            self._handle,
            self._host,
            self.port,
            process_request=self._answer,
            select_subprotocol=lambda _, offered: next(iter(offered), None),
            compression=None,
            max_size=_MAX_HEARD,
            close_timeout=_CLOSE_S,
            logger=quiet_logger(__name__),
        )
        self.port = next(iter(server.sockets)).getsockname()[1]
        self.guard = Guard.at(self._host, self.port)
        if self._token is not None:
            self.guard = replace(self.guard, token=self._token)
        self._started.set_result(None)
        await self._ends.wait()
        if server.connections:
            await asyncio.sleep(2.0 / VIEWS_HZ)  # so that browsers get the last view
        server.close()
        with suppress(TimeoutError):  # the server waits longer for a connection without any request
            await asyncio.wait_for(server.wait_closed(), 2 * _CLOSE_S)

    # ---- plain requests --------------------------------------------------------------------------

    def _answer(self, connection: ServerConnection, request: Request) -> Response | None:
        """Serve files and refusals; None: a websocket that may be opened."""
        headers = {name.lower(): value for name, value in request.headers.raw_items()}
        if why := self.guard.complaint(request.path, headers):
            return connection.respond(HTTPStatus.FORBIDDEN, f"{why}\n")
        path = urlsplit(request.path).path
        if headers.get("upgrade", "").lower() == "websocket":
            return None if path in self._sockets else connection.respond(HTTPStatus.NOT_FOUND, "")
        if (found := self._files.get(path)) is None:
            return connection.respond(HTTPStatus.NOT_FOUND, "there is only /\n")
        kind, content = found
        if path == "/" and self.guard.in_target(request.path):  # into a cookie, and out of the address
            answer = connection.respond(HTTPStatus.SEE_OTHER, "")
            answer.headers["Location"] = "/"
            if self.guard.token is not None:
                answer.headers["Set-Cookie"] = self.guard.set_cookie()
            return answer
        head = Headers(
            {"Content-Type": kind, "Content-Length": str(len(content)), "Cache-Control": "no-store"}
        )
        head["X-Content-Type-Options"] = "nosniff"
        if path == "/scene/":
            head["Content-Encoding"] = "gzip"
            head["Content-Security-Policy"] = "frame-ancestors 'self'"
        else:
            head["Content-Security-Policy"] = _POLICY
        return Response(HTTPStatus.OK, "OK", head, content)

    # ---- websockets ------------------------------------------------------------------------------

    async def _handle(self, browser: ServerConnection) -> None:
        assert browser.request is not None
        with suppress(ConnectionClosed, OSError):
            if urlsplit(browser.request.path).path == "/feed":
                await _until_first(self._feed(browser), self._hear(browser))
            else:
                await self._pass_on(browser)

    async def _feed(self, browser: ServerConnection) -> None:
        """Send the newest view, as fast as the browser takes it."""
        sent: dict[str, int] = {}
        while True:
            begun_s = self._loop.time()
            await browser.send(self._source.view(), text=True)
            for name, picture in self._source.pictures().items():
                if sent.get(name) != picture.number:
                    sent[name] = picture.number
                    called = name.encode()[:255]
                    await browser.send(bytes([len(called)]) + called + picture.jpeg)
            await asyncio.sleep(max(0.005, begun_s + 1.0 / VIEWS_HZ - self._loop.time()))

    async def _hear(self, browser: ServerConnection) -> None:
        """Receive orders."""
        async for message in browser:
            try:
                order = _HEARD.decode(message)
            except (msgspec.DecodeError, InvalidValueError) as error:
                self._source.refuse("what was typed", str(error))
            else:
                if isinstance(order, Player):
                    self._source.play(order)
                else:
                    self._source.order(order)
            await asyncio.sleep(0)  # a browser that sends many must not block the others

    async def _pass_on(self, browser: ServerConnection) -> None:
        """Proxy between a browser and viser, in both directions."""
        assert self._scene is not None
        protocols = None if browser.subprotocol is None else [browser.subprotocol]
        async with connect(
            f"ws://127.0.0.1:{self._scene.port}/",
            subprotocols=protocols,
            additional_headers={SECRET_HEADER: self._scene.secret},
            compression=None,
            max_size=None,
            proxy=None,
            logger=quiet_logger(__name__),
        ) as viser:
            await _until_first(_copy(viser, browser), _copy(browser, viser))


async def _copy(source: Connection, to: Connection) -> None:
    async for message in source:
        await to.send(message)


async def _until_first(*tasks: Coroutine[Any, Any, None]) -> None:
    """Wait until the first of them ends, and cancel the others."""
    started = [asyncio.create_task(each) for each in tasks]
    try:
        done, _ = await asyncio.wait(started, return_when=asyncio.FIRST_COMPLETED)
        for each in done:
            each.result()
    finally:
        for each in started:
            each.cancel()
        await asyncio.gather(*started, return_exceptions=True)


def _own_files(index: str) -> dict[str, tuple[str, bytes]]:
    """The static files by path, / for the index: content type and content."""
    folder = files("robot_runtime.page") / "static"
    named = {f"/{each.name}": each for each in folder.iterdir()}
    out = {path: (_KINDS[Path(path).suffix], each.read_bytes()) for path, each in named.items()}
    pages = {path: out.pop(path) for path in tuple(out) if path.endswith(".html")}
    return out | {"/": pages[f"/{index}"]}


def _scene_page() -> tuple[str, bytes]:
    """viser's client, without its panel; compressed, as it is one file of a megabyte."""
    import viser

    assert viser.__file__ is not None
    text = (Path(viser.__file__).parent / "client" / "build" / "index.html").read_text()
    return _KINDS[".html"], gzip.compress(text.replace("</head>", f"{_SCENE_STYLE}</head>", 1).encode(), 5)
