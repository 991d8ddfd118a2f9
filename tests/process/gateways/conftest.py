"""What processes of gateways need."""

import os
import subprocess
import sys
from pathlib import Path

import pytest


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
