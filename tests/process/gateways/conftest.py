"""What processes of gateways need."""

import os
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest


@pytest.fixture
def free_port() -> Callable[[], int]:
    """A port that nobody listens on, for a server that is to come back at the same one."""

    def find() -> int:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            return int(listener.getsockname()[1])

    return find


@pytest.fixture(scope="session")
def stock_python(tmp_path_factory) -> Path:
    """An interpreter with stock openpi-client, which wants numpy below 2."""
    folder = tmp_path_factory.mktemp("openpi")
    python = folder / "bin" / "python"
    uv = [os.environ["UV"]] if "UV" in os.environ else ["python3", "-m", "uv"]  # `uv run` says which it is
    for command in (
        ["venv", "-q", "--python", sys.executable, str(folder)],
        ["pip", "install", "-q", "--python", str(python), "openpi-client==0.1.2", "typing-extensions"],
    ):
        subprocess.run([*uv, "--no-config", *command], check=True)
    return python
