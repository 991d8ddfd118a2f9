"""The page's process of a run that is going on: it is told what to show, and answers with where it is."""

import json
import os
from collections.abc import Callable
from contextlib import ExitStack
from typing import TYPE_CHECKING, TextIO

from msgspec import Struct

from robot_runtime.errors import InvalidValueError
from robot_runtime.page.body import Body
from robot_runtime.page.live import LiveSource
from robot_runtime.page.scene import Scene
from robot_runtime.page.source import Source

if TYPE_CHECKING:
    from robot_runtime.page.web import PageServer


_LAST_WORD_S = 0.5
"""How long a run's last word may take to come through; one that was killed has none [s]."""


class Told(Struct, frozen=True, kw_only=True):
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


def serve_live(told: Told, body: Body | None, said: TextIO, until: Callable[[], None]) -> None:
    """Show a run until `until` returns.

    said: gets one line of JSON, {"url": ...}. InvalidValueError: nothing can listen there.
    """
    with ExitStack() as opened:
        scene = opened.enter_context(Scene(body))
        source = opened.enter_context(LiveSource(told.stream, told.orders, told.token, scene))
        ports = (told.port,) if told.is_exact else (told.port, 0)
        server = opened.enter_context(first_server(told.host, ports, source, scene))
        said.write(json.dumps({"url": server.url}) + "\n")
        said.flush()
        until()
        source.hear_out(_LAST_WORD_S)  # which the server sends to browsers before it closes


def first_server(host: str, ports: tuple[int, ...], source: Source, scene: Scene) -> "PageServer":
    """A server that listens at the first of these ports that is free. InvalidValueError: at none of them."""
    from robot_runtime.page.web import PageServer

    failed: OSError | None = None
    for port in ports:
        server = PageServer(host, port, source, scene)
        try:
            return server.start()
        except OSError as error:
            failed = error
    assert failed is not None
    why = os.strerror(failed.errno) if failed.errno else str(failed)
    raise InvalidValueError(f"no page can be shown at {host}:{ports[0]}: {why}")
