"""Server processes that end with their test."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from robot_runtime.clock import MonotonicClock
from tests.process.patient import PatientTime

HERE = Path(__file__).parent
START_TIMEOUT_S = 30.0


class ToyServerProcess:
    """One `serve` process; ready once constructed."""

    def __init__(
        self, folder: Path, address: str, *, delay_ms: float, heartbeat_ms: float, policy: str
    ) -> None:
        facts = folder / f"ready-{time.monotonic_ns()}.json"
        env = os.environ | {"PYTHONPATH": str(HERE.parents[1])}
        command = [sys.executable, str(HERE / "serve_toy.py"), address, str(facts)]
        command += [str(delay_ms), str(heartbeat_ms), policy]
        self._log = facts.with_suffix(".log")
        with self._log.open("w") as log:
            self.process = subprocess.Popen(command, env=env, stdout=log, stderr=subprocess.STDOUT)
        deadline_s = time.monotonic() + START_TIMEOUT_S
        while not facts.exists():
            if self.process.poll() is not None or time.monotonic() > deadline_s:
                self.kill()
                pytest.fail(f"no server after {START_TIMEOUT_S:g} s at most: {self._log.read_text()}")
            time.sleep(0.005)
        self.address: str = json.loads(facts.read_text())["address"]

    def output(self) -> str:
        """All it printed; waits for its end."""
        self.process.wait(START_TIMEOUT_S)
        return self._log.read_text()

    def kill(self) -> None:
        """As kill -9."""
        self.process.kill()
        self.process.wait(START_TIMEOUT_S)


@pytest.fixture
def patient_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """All clocks of this process go by the robot that is run in the test's thread."""
    patient = PatientTime()
    monkeypatch.setattr(MonotonicClock, "now_ns", lambda self: patient.now_ns())
    monkeypatch.setattr(MonotonicClock, "sleep_until_ns", lambda self, t_ns: patient.sleep_until_ns(t_ns))


@pytest.fixture
def start_server(tmp_path: Path) -> Iterator[Callable[..., ToyServerProcess]]:
    servers: list[ToyServerProcess] = []

    # A busy machine may stop a process for longer than the heartbeats of a real server allow.
    def start(
        address: str = "tcp://127.0.0.1:*",
        *,
        delay_ms: float = 0.0,
        heartbeat_ms: float = 1000.0,
        policy: str = "toy",
    ) -> ToyServerProcess:
        settings = {"delay_ms": delay_ms, "heartbeat_ms": heartbeat_ms, "policy": policy}
        servers.append(ToyServerProcess(tmp_path, address, **settings))
        return servers[-1]

    yield start
    for server in servers:
        server.kill()
