"""The server of a live calibration's page: what a browser gets from it, and what it cannot do."""

import http.client
import json
from collections.abc import Iterator
from contextlib import closing

import msgspec
import numpy as np
import pytest
import simplejpeg
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from robot_runtime.page.guide_source import GuideSource
from robot_runtime.page.web import PageServer
from tests.page.test_guide_source import GUIDE, RAMP, told


@pytest.fixture
def source() -> GuideSource:
    return told()


@pytest.fixture
def server(source: GuideSource) -> Iterator[PageServer]:
    with PageServer("127.0.0.1", 0, source, None, index="guide.html") as server:
        yield server


def test_a_browser_is_told_what_the_command_tells_and_gets_its_picture(server: PageServer):
    with closing(connect(f"ws://127.0.0.1:{server.port}/feed")) as feed:
        view, picture = json.loads(feed.recv(timeout=10.0)), feed.recv(timeout=10.0)
    assert view == msgspec.json.decode(msgspec.json.encode(GUIDE))
    assert isinstance(picture, bytes)
    name_end = 1 + picture[0]
    assert picture[1:name_end] == b"camera"
    assert np.abs(simplejpeg.decode_jpeg(picture[name_end:]).astype(int) - RAMP).mean() < 3.0


def test_there_is_a_page_and_no_scene_and_nothing_can_be_pressed(server: PageServer, source: GuideSource):
    for path, status in (("/", 200), ("/guide.js", 200), ("/feed.js", 200), ("/scene/", 404)):
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=5.0)
        connection.request("GET", path)
        answer = connection.getresponse()
        body = answer.read()
        assert answer.status == status
        assert path != "/" or b"guide.js" in body
    with pytest.raises(InvalidStatus, match="404"):
        connect(f"ws://127.0.0.1:{server.port}/scene")
    before = source.view()
    with closing(connect(f"ws://127.0.0.1:{server.port}/feed")) as feed:
        feed.send('{"order": "Stop"}')
        feed.send("nonsense")
        assert [feed.recv(timeout=10.0) for _ in range(4)].count(before) == 3
    assert source.view() == before
