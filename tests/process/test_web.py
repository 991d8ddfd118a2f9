"""The page's server: who gets in, what it takes from a browser, and a run that is not there any more."""

import http.client
import itertools
import json
import socket
import time
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest
import zmq
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect

from robot_runtime.core.orders import Arm, Order
from robot_runtime.errors import InvalidValueError
from robot_runtime.log.ring import Nowhere
from robot_runtime.log.writer import RunLogWriter
from robot_runtime.page.live import LiveSource
from robot_runtime.page.order_door import OrderDoor
from robot_runtime.page.scene import Scene
from robot_runtime.page.web import PageServer
from tests.page import made_run


@pytest.fixture(scope="module")
def source(tmp_path_factory) -> Iterator[LiveSource]:
    """Of a run that nobody runs."""
    folder = tmp_path_factory.mktemp("sockets")
    with Scene(None) as scene, LiveSource(f"ipc://{folder}/a", f"ipc://{folder}/b", "t", scene) as source:
        yield source


@pytest.fixture(scope="module")
def elsewhere(source: LiveSource) -> Iterator[PageServer]:
    """A page that others can reach."""
    with PageServer("0.0.0.0", 0, source, source._scene) as server:
        yield server


def answer(server: PageServer, path: str, **headers: str) -> http.client.HTTPResponse:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=5.0)
    connection.request("GET", path, headers=headers)
    return connection.getresponse()


def feed(server: PageServer) -> ClientConnection:
    cookie = server.guard.set_cookie().partition(";")[0] if server.guard.token else ""
    return connect(f"ws://127.0.0.1:{server.port}/feed", additional_headers={"Cookie": cookie})


def views(connection: ClientConnection) -> Iterator[dict]:
    while True:
        yield json.loads(connection.recv(timeout=10.0))


def test_the_address_with_its_token_lets_a_browser_in_and_keeps_it_out_of_sight(elsewhere: PageServer):
    assert answer(elsewhere, "/").status == 403
    first = answer(elsewhere, "/?" + urlsplit(elsewhere.url).query)
    assert (first.status, first.headers["Location"]) == (303, "/")
    cookie = first.headers["Set-Cookie"].partition(";")[0]
    assert answer(elsewhere, "/", Cookie=cookie).status == 200
    assert answer(elsewhere, "/page.js", Cookie=cookie).status == 200


@pytest.mark.parametrize("path", ["/feed", "/scene"])
def test_a_socket_without_the_token_is_not_opened(elsewhere: PageServer, path: str):
    with pytest.raises(InvalidStatus, match="403"):
        connect(f"ws://127.0.0.1:{elsewhere.port}{path}")


@pytest.mark.parametrize(
    "said",
    [
        "",
        "{",
        "[]",
        '{"order": "Dance"}',
        '{"order": "SetTask", "task": ""}',
        "\x00",
        '{"order": "TakeOver", "parts": 3}',
    ],
)
def test_what_is_no_order_is_refused_on_the_page(elsewhere: PageServer, said: str):
    with feed(elsewhere) as connection:
        before = next(views(connection))["orders"]
        connection.send(said)
        shown = next(view for view in views(connection) if view["orders"] != before)
        assert shown["orders"][-1]["refused"]


def test_a_message_that_is_too_long_ends_the_connection(elsewhere: PageServer):
    with feed(elsewhere) as connection:
        connection.send("x" * 200_000)
        with pytest.raises(ConnectionClosed):
            list(itertools.islice(views(connection), 1000))


def test_an_order_to_a_run_that_is_gone_says_so(elsewhere: PageServer):
    with feed(elsewhere) as connection:
        connection.send('{"order": "Stop"}')
        shown = next(
            view for view in views(connection) if view["orders"] and view["orders"][-1]["text"] == "Stop"
        )
        assert "the run is gone" in shown["orders"][-1]["refused"]


def test_a_run_that_ends_says_so_to_browsers_before_the_page_closes(tmp_path):
    address = f"ipc://{tmp_path}/a"
    with (
        Scene(None) as scene,
        LiveSource(address, f"ipc://{tmp_path}/b", "t", scene) as source,
        PageServer("127.0.0.1", 0, source, scene) as server,
        feed(server) as connection,
    ):
        log = RunLogWriter(made_run.info(), Nowhere())
        log.subscribe(address)
        while source.state.info is None:
            log.line(made_run.START_NS, "here")
            log.wake()
            time.sleep(0.02)
        assert not next(views(connection))["is_over"]
        log.close({"success": "True"})
        source.hear_out(5.0)
        shown = next(view for view in views(connection) if view["is_over"])
        assert shown["banner"] == "The run is over: success"


def test_orders_of_a_flood_that_are_not_taken_are_said_to_be_refused_a_few_a_second(tmp_path):
    def post(order: Order, by: str) -> None:
        raise InvalidValueError("200 orders wait already")

    refused: list[tuple[Order, str, str]] = []
    context, address = zmq.Context(), f"ipc://{tmp_path}/orders"
    with (
        OrderDoor(context, address, "t", post, refused=lambda *said: refused.append(said)),
        context.socket(zmq.PUSH) as page,
    ):
        page.connect(address)
        for _ in range(50):
            page.send_multipart((b"t", b'{"order": "Arm"}'))
        end_s = time.monotonic() + 10.0
        while not refused and time.monotonic() < end_s:
            time.sleep(0.01)
    context.destroy(linger=0)
    assert refused[0] == (Arm(), "page", "200 orders wait already")
    assert len(refused) < 10


def test_a_page_of_a_live_run_has_no_slider(elsewhere: PageServer):
    with feed(elsewhere) as connection:
        assert next(views(connection))["player"] is None


def test_a_browser_that_never_asks_does_not_keep_the_page_from_ending(source: LiveSource):
    with PageServer("127.0.0.1", 0, source, source._scene) as server:
        silent = socket.create_connection(("127.0.0.1", server.port))
        begun_s = time.monotonic()
    assert time.monotonic() - begun_s < 2.0
    assert not server._thread.is_alive()
    silent.close()
