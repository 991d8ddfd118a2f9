"""viser's server answers the page's alone."""

import pytest
import viser
from websockets import Subprotocol
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from robot_runtime.page.scene import SECRET_HEADER, Scene

PROTOCOL = [Subprotocol(f"viser-v{viser.__version__}")]


def test_viser_answers_only_who_knows_the_secret():
    with Scene(None) as scene:
        url = f"ws://127.0.0.1:{scene.port}"
        for headers in ({}, {SECRET_HEADER: "guessed"}):
            with pytest.raises(InvalidStatus, match="403"):
                connect(url, subprotocols=PROTOCOL, additional_headers=headers)
        known = {SECRET_HEADER: scene.secret}
        with connect(url, subprotocols=PROTOCOL, additional_headers=known) as connection:
            assert connection.recv(timeout=10.0)


def test_nobody_can_have_viser_open_a_tunnel_to_somebody_elses_server():
    with Scene(None) as scene:
        heard = {kind.__name__ for kind in scene._server._websock_server._incoming_handlers}
        assert not {name for name in heard if "Share" in name}
