"""The page's process of a run or a calibration: it is told what to show, and answers with where it is."""

import json
import os
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from typing import TYPE_CHECKING, TextIO

from msgspec import Struct

from robot_runtime.errors import InvalidValueError
from robot_runtime.page.body import Body
from robot_runtime.page.guide import GuidePageConfig
from robot_runtime.page.guide_source import GuideSource
from robot_runtime.page.live import LiveSource
from robot_runtime.page.scene import Scene
from robot_runtime.page.source import Source

if TYPE_CHECKING:
    from robot_runtime.page.web import PageServer


_LAST_WORD_S = 0.5
"""How long a run's last word may take to come through; one that was killed has none [s]."""


class PageConfig(Struct, frozen=True, kw_only=True, tag="run"):
    """What a run tells its page, as one line of JSON."""

    stream: str
    orders: str
    """Addresses of the run's sockets."""
    token: str
    """What the run takes orders with."""
    host: str
    port: int
    is_exact: bool
    """Whether only this port will do; else a free one, if it is in use."""
    columns: tuple[str, ...]
    """Of the robot's states."""
    model: str = ""
    """The robot's: a file, or a name that the command knows; empty: none."""


def serve_live(told: PageConfig, body: Body | None, said: TextIO, until: Callable[[], None]) -> None:
    """Show a run until `until` returns.

    said: gets one line of JSON, {"url": ...}. InvalidValueError: nothing can listen there.
    """
    with ExitStack() as opened:
        scene = opened.enter_context(Scene(body))
        source = opened.enter_context(LiveSource(told.stream, told.orders, told.token, scene))
        server = opened.enter_context(first_server(told.host, _ports(told), source, scene))
        _tell(server, said)
        until()
        source.hear_out(_LAST_WORD_S)  # which the server sends to browsers before it closes


def serve_guide(told: GuidePageConfig, lines: Iterable[bytes], said: TextIO) -> None:
    """Show a calibration as long as there are lines, each a `Message` as JSON.

    said: gets one line of JSON, {"url": ...}. InvalidValueError: nothing can listen there.
    """
    source = GuideSource()
    with first_server(told.host, _ports(told), source, None, index="guide.html") as server:
        _tell(server, said)
        for line in lines:
            source.take(line)
        source.end()  # which the server sends to browsers before it closes


def _ports(told: PageConfig | GuidePageConfig) -> tuple[int, ...]:
    return (told.port,) if told.is_exact else (told.port, 0)


def _tell(server: "PageServer", said: TextIO) -> None:
    said.write(json.dumps({"url": server.url}) + "\n")
    said.flush()


def first_server(
    host: str, ports: tuple[int, ...], source: Source, scene: Scene | None, *, index: str = "index.html"
) -> "PageServer":
    """A server that listens at the first of these ports that is free. InvalidValueError: at none of them."""
    from robot_runtime.page.web import PageServer

    failed: OSError | None = None
    for port in ports:
        server = PageServer(host, port, source, scene, index=index)
        try:
            return server.start()
        except OSError as error:
            failed = error
    assert failed is not None
    why = os.strerror(failed.errno) if failed.errno else str(failed)
    raise InvalidValueError(f"no page can be shown at {host}:{ports[0]}: {why}")
