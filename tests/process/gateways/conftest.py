"""What processes of gateways need."""

import socket
from collections.abc import Callable

import pytest


@pytest.fixture
def free_port() -> Callable[[], int]:
    """A port that nobody listens on, for a server that is to come back at the same one."""

    def find() -> int:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            return int(listener.getsockname()[1])

    return find
