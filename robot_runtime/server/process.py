"""A server as its own process, for commands that bring one along."""

import contextlib
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from robot_runtime.errors import ServerUnavailableError


@contextlib.contextmanager
def server_process(*, policy: str, delay_ms: float = 0.0, timeout_s: float = 60.0) -> Iterator[str]:
    """Run `robot-runtime serve` on a free port; yields its address once it is ready, stops it on exit."""
    with tempfile.TemporaryDirectory() as folder:
        ready = Path(folder) / "ready.json"
        command = [sys.executable, "-m", "robot_runtime.cli", "serve", "--policy", policy]
        command += ["--address", "tcp://127.0.0.1:*", "--delay-ms", str(delay_ms), "--json", str(ready)]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        try:
            yield _wait_until_ready(process, ready, timeout_s)
        finally:
            process.terminate()
            try:
                process.wait(timeout=5.0)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _wait_until_ready(process: subprocess.Popen, ready: Path, timeout_s: float) -> str:
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        with contextlib.suppress(FileNotFoundError, json.JSONDecodeError):
            return json.loads(ready.read_text())["address"]
        if process.poll() is not None:
            said = process.stderr.read() if process.stderr is not None else ""
            raise ServerUnavailableError(
                f"the server ended with exit code {process.returncode}: {said.strip()}"
            )
        time.sleep(0.05)
    raise ServerUnavailableError(f"the server was not ready within {timeout_s:g} s")
