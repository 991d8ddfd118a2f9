"""The page's process of a run or a calibration: it reads what to show, and reports its address."""

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
"""How long a run's last message may take to arrive; a run that was killed sends none [s]."""


class PageConfig(Struct, frozen=True, kw_only=True, tag="run"):
    """What a run sends its page, as one line of JSON."""

    stream: str
    orders: str
    """Addresses of the run's sockets."""
    token: str
    """The token that the run's orders must carry."""
    host: str
    port: int
    is_exact: bool
    """Whether only this port will do; otherwise a free one is used if it is taken."""
    columns: tuple[str, ...]
    """Schema of the robot's states."""
    model: str = ""
    """The robot's model: a file, or a name that the command knows; empty: none."""


def serve_live(config: PageConfig, body: Body | None, report: TextIO, until: Callable[[], None]) -> None:
    """Show a run until `until` returns.

    report: receives one line of JSON, {"url": ...}. InvalidValueError: the address cannot be listened at.
    """
    with ExitStack() as opened:
        scene = opened.enter_context(Scene(body))
        source = opened.enter_context(LiveSource(config.stream, config.orders, config.token, scene))
        server = opened.enter_context(first_server(config.host, _ports(config), source, scene))
        _report_url(server, report)
        until()
        source.hear_out(_LAST_WORD_S)  # which the server sends to browsers before it closes


def serve_guide(config: GuidePageConfig, lines: Iterable[bytes], report: TextIO) -> None:
    """Show a calibration as long as there are lines, each a `Message` as JSON.

    report: receives one line of JSON, {"url": ...}. InvalidValueError: the address cannot be listened at.
    """
    source = GuideSource()
    with first_server(config.host, _ports(config), source, None, index="guide.html") as server:
        _report_url(server, report)
        for line in lines:
            source.take(line)
        source.end()  # which the server sends to browsers before it closes


def _ports(config: PageConfig | GuidePageConfig) -> tuple[int, ...]:
    return (config.port,) if config.is_exact else (config.port, 0)


def _report_url(server: "PageServer", report: TextIO) -> None:
    report.write(json.dumps({"url": server.url}) + "\n")
    report.flush()


def first_server(
    host: str, ports: tuple[int, ...], source: Source, scene: Scene | None, *, index: str = "index.html"
) -> "PageServer":
    """Return a server at the first of these ports that is free. InvalidValueError: none of them is."""
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
