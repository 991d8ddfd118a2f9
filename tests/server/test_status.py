"""What a server's page shows, and to whom."""

import http.client
import json
from urllib.parse import urlsplit

import pytest

from robot_runtime.core.values.action import NS_PER_S
from robot_runtime.errors import InvalidValueError
from robot_runtime.server.server_metrics import ServerMetrics
from robot_runtime.server.status_http import StatusServer, status_of
from robot_runtime.wire.server_session import RequestSeen, RobotSeen


def metrics() -> ServerMetrics:
    out = ServerMetrics(is_ready=True, waiting=1, rows_sent=64)
    out.warm, out.max_batch, out.pieces_to_warm = ("ClampedPrefix",), 2, 5
    out.batch_started([2_000_000, 30_000_000])
    out.infer_s.add(0.018)
    out.requests["answered"] += 2
    waits = RequestSeen(waited_ns=NS_PER_S // 50, left_ns=NS_PER_S, is_running=False)
    out.robots = (
        RobotSeen(name="left", silent_ns=0, num_answered=2, requests=(waits,)),
        RobotSeen(name="right", silent_ns=3 * NS_PER_S, num_answered=0, requests=()),
    )
    return out


def test_it_says_who_is_connected_how_long_she_waits_and_what_is_warm():
    (policy,) = status_of({"track": metrics()})["policies"]
    left, right = policy["robots"]
    assert policy["warm"] == {"samplers": ["ClampedPrefix"], "max_batch": 2, "pieces_left": 5}
    assert left["requests"] == [{"waited_ms": 20, "left_ms": 1000, "is_running": False}]
    assert (right["name"], right["silent_ms"], right["requests"]) == ("right", 3000, [])


def test_times_are_bounds_below_which_half_and_nearly_all_lie():
    (policy,) = status_of({"track": metrics()})["policies"]
    assert policy["queue_ms"] == pytest.approx({"p50": 2.0, "p95": 50.0, "mean": 16.0})
    assert policy["infer_ms"]["p50"] == 20.0
    assert policy["first_rows_ms"] is None
    assert dict(policy["batch_sizes"])["2"] == 1


def answer(server: StatusServer, path: str, **headers: str) -> http.client.HTTPResponse:
    connection = http.client.HTTPConnection("127.0.0.1", urlsplit(server.url).port, timeout=5.0)
    connection.request("GET", path, headers=headers)
    return connection.getresponse()


def test_on_this_machine_the_page_asks_for_nothing_but_our_own_name():
    with StatusServer("127.0.0.1", 0, {"track": metrics()}) as server:
        shown = json.loads(answer(server, "/status.json").read())
        assert shown["policies"][0]["name"] == "track"
        for path in ("/", "/server.js", "/server.css"):
            assert answer(server, path).status == 200
        assert answer(server, "/other").status == 404
        assert answer(server, "/status.json", Host="evil.example").status == 403
        assert answer(server, "/status.json", Origin="http://evil.example").status == 403


def test_elsewhere_it_asks_for_the_token_that_it_has_printed():
    with StatusServer("0.0.0.0", 0, {"track": metrics()}) as server:
        assert answer(server, "/status.json").status == 403
        first = answer(server, "/?" + urlsplit(server.url).query)
        assert (first.status, first.headers["Location"]) == (303, "/")
        cookie = first.headers["Set-Cookie"].partition(";")[0]
        assert answer(server, "/status.json", Cookie=cookie).status == 200
        assert answer(server, "/status.json", Cookie=cookie[:-1]).status == 403


def test_a_port_that_is_in_use_is_named():
    with (
        StatusServer("127.0.0.1", 0, {}) as server,
        pytest.raises(InvalidValueError, match=f"127.0.0.1:{urlsplit(server.url).port}"),
    ):
        StatusServer("127.0.0.1", urlsplit(server.url).port or 0, {})
