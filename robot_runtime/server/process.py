"""A server as a child process, for commands that start one themselves."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import TracebackType

from robot_runtime.errors import ServerUnavailableError

ANY_PORT = "tcp://127.0.0.1:*"


FOR_ONE_ROBOT = ("--max-batch", "1", "--warm-s", "60", "--torch-threads", "1")
"""The robot runs on the same machine: a second torch thread would compete for the robot's core, and a cold
sampler would be warmed up between the robot's requests."""


class ServerProcess:
    """`robot-runtime serve` in a child process, for one robot on this machine: a context manager that is
    ready once every sampler part is warm."""

    def __init__(
        self,
        policy: str,
        *,
        address: str = ANY_PORT,
        delay_ms: float = 0.0,
        timeout_s: float = 120.0,
    ) -> None:
        """
        policy, address, delay_ms: as for `robot-runtime serve`.
        timeout_s: ServerUnavailableError if it is not ready by then, or ends before.
        """
        self._folder = tempfile.TemporaryDirectory()
        ready, log = Path(self._folder.name) / "ready.json", Path(self._folder.name) / "stderr"
        command = [sys.executable, "-m", "robot_runtime.cli", "serve", "--policy", policy]
        command += ["--address", address, "--delay-ms", str(delay_ms), "--json", str(ready), *FOR_ONE_ROBOT]
        with log.open("wb") as stderr:
            # Its own process group: a Ctrl-C is for the robot, which shuts its server down in order.
            self._process = subprocess.Popen(
                command, stdout=subprocess.DEVNULL, stderr=stderr, start_new_session=True
            )
        try:
            self.address = self._wait_until_ready(ready, log, timeout_s)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> "ServerProcess":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def kill(self) -> None:
        """kill -9, without a goodbye."""
        os.kill(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def close(self) -> None:
        """Stop it in order, or kill it after a second."""
        self._process.terminate()
        try:
            self._process.wait(timeout=1.0)
        except subprocess.TimeoutExpired:
            self.kill()
        self._folder.cleanup()

    def _wait_until_ready(self, ready: Path, log: Path, timeout_s: float) -> str:
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            with contextlib.suppress(FileNotFoundError):
                return json.loads(ready.read_text())["address"]
            if self._process.poll() is not None:
                output = log.read_text().strip()
                raise ServerUnavailableError(
                    f"the server ended with exit code {self._process.returncode}: {output}"
                )
            time.sleep(0.02)
        raise ServerUnavailableError(f"the server was not ready within {timeout_s:g} s")
