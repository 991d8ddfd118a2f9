"""`LiveServer`: a server in its own process and a well-behaved robot, for attacks."""

import json
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType

from policies.scripted import FRANKA
from robot_runtime.core.policy import ChunkRequest
from robot_runtime.core.values.action import NS_PER_S
from robot_runtime.errors import RobotRuntimeError
from robot_runtime.robot.client import PolicyClient
from robot_runtime.server.warming import zero_observation
from robot_runtime.wire.events import PartReceived, ServerLost

START_S = 120.0
PERIOD_S = 0.05


def started_server(folder: Path, *options: str) -> tuple[subprocess.Popen, str]:
    """Start `serve`; return the ready process and its address. The folder's file `log` gets its output.

    RobotRuntimeError: it ended before, or takes too long.
    """
    facts, log = folder / "ready.json", folder / "log"
    command = [sys.executable, "-m", "robot_runtime.cli", "serve", *options]
    command += ["--address", "tcp://127.0.0.1:*", "--json", str(facts)]
    with log.open("w") as out:
        process = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT)
    deadline_s = time.monotonic() + START_S
    while not facts.exists():
        if process.poll() is not None or time.monotonic() > deadline_s:
            process.kill()
            raise RobotRuntimeError(f"the server did not start: {log.read_text()}")
        time.sleep(0.05)
    return process, json.loads(facts.read_text())["address"]


@dataclass(frozen=True, kw_only=True)
class Asked:
    """Answers that the robot got."""

    per_s: float
    """Answers per second; 20 at most."""
    losses: int


class LiveServer:
    """`serve --policy hold`, and a robot that can ask it 20 times per second; a context manager."""

    def __init__(self) -> None:
        self._folder = TemporaryDirectory()
        self._process, self.address = started_server(Path(self._folder.name), "--policy", "hold")
        self._robot = PolicyClient(self.address, schema=FRANKA)
        self._robot.wait_until_ready(START_S)
        self._num_asked = 0

    def __enter__(self) -> "LiveServer":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._robot.close()
        self._process.kill()
        self._process.wait()
        self._folder.cleanup()

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    @property
    def port(self) -> int:
        return int(self.address.rpartition(":")[2])

    def log(self) -> str:
        """Output of the server so far."""
        return (Path(self._folder.name) / "log").read_text()

    def memory(self) -> int:
        """Resident memory of the server [bytes]."""
        try:
            return int(Path(f"/proc/{self._process.pid}/statm").read_text().split()[1]) * 4096
        except (OSError, IndexError):
            return 0

    def ask_for(self, duration_s: float) -> Asked:
        """Send requests for a time [s]."""
        end_s = time.monotonic() + duration_s
        num_answers = losses = 0
        while time.monotonic() < end_s:
            if (welcome := self._robot.welcome) is not None:
                self._num_asked += 1
                self._robot.submit(
                    ChunkRequest(
                        request_id=self._num_asked,
                        epoch=0,
                        observation=zero_observation(welcome.info.schema, next(iter(welcome.info.tasks), "")),
                        prev_action_chunk=None,
                        inference_delay=0,
                        sampler=welcome.info.capabilities.samplers[0](),
                        seed=0,
                        deadline_ns=NS_PER_S,
                    )
                )
            time.sleep(PERIOD_S)
            for event in self._robot.events():
                losses += isinstance(event, ServerLost)
                num_answers += isinstance(event, PartReceived) and event.part.is_last
        return Asked(per_s=num_answers / duration_s, losses=losses)
