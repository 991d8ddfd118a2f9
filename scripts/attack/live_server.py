"""Shared code of attacks: a server in its own process, and a well-behaved robot beside the attack."""

import json
import os
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory

from msgspec import structs

from policies.scripted import FRANKA
from robot_runtime.core.policy import ChunkRequest
from robot_runtime.core.values.action import NS_PER_MS, NS_PER_S
from robot_runtime.errors import RobotRuntimeError
from robot_runtime.robot.client import PolicyClient
from robot_runtime.server.warming import zero_observation
from robot_runtime.wire.events import PartReceived

START_S = 120.0


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


class Asker:
    """Well-behaved robot: it sends requests at a steady pace, whatever the answers, and counts these."""

    def __init__(
        self,
        client: PolicyClient,
        *,
        period_s: float = 0.05,
        deadline_ns: int = NS_PER_S,
        num_open: int = 0,
    ) -> None:
        """num_open: earlier requests that stay of use when a later one is sent."""
        welcome = client.wait_until_ready(START_S)
        self._client, self._period_s, self._num_open = client, period_s, num_open
        self._request = ChunkRequest(
            observation=zero_observation(welcome.info.schema, next(iter(welcome.info.tasks), "")),
            sampler=welcome.info.capabilities.samplers[0](),
            epoch=client.new_epochs(),
            deadline_ns=deadline_ns,
        )
        self._num_asked = 0
        self.happened = Counter[str]()
        """Events by type."""
        self.took_ms: list[float] = []
        """Latency of each complete answer [ms]."""

    @property
    def losses(self) -> int:
        """Return how often the robot lost the server."""
        return self.happened["ServerLost"]

    def ask_for(self, duration_s: float) -> int:
        """Send requests for a time [s]; return how many complete answers come."""
        now_s = time.monotonic()
        end_s, next_s, before = now_s + duration_s, now_s, len(self.took_ms)
        while (now_s := time.monotonic()) < end_s:
            if now_s >= next_s:
                next_s += self._period_s
                self._ask()
            self._client.wait_for_events(max(0.0, min(next_s, end_s) - time.monotonic()))
            for event in self._client.events():
                self.happened[type(event).__name__] += 1
                if isinstance(event, PartReceived) and event.part.is_last:
                    self.took_ms.append((event.arrived_ns - event.sent_ns) / NS_PER_MS)
        return len(self.took_ms) - before

    def _ask(self) -> None:
        if self._client.welcome is None:
            return
        self._num_asked += 1
        seen = self._request.observation
        state = seen.state.replace(t_ns=time.monotonic_ns())
        self._client.submit(
            structs.replace(
                self._request,
                request_id=self._num_asked,
                observation=structs.replace(seen, state=state),
                in_flight=tuple(range(max(1, self._num_asked - self._num_open), self._num_asked)),
            )
        )


class LiveServer:
    """`serve --policy hold`, and a robot that can ask it 20 times per second; a context manager."""

    def __init__(self) -> None:
        self._folder = TemporaryDirectory()
        self._process, self.address = started_server(Path(self._folder.name), "--policy", "hold")
        self._client = PolicyClient(self.address, schema=FRANKA)
        self.robot = Asker(self._client)

    def __enter__(self) -> "LiveServer":
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()
        self._process.kill()
        self._process.wait()
        self._folder.cleanup()

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    def memory(self) -> int:
        """Return the resident memory of the server [bytes]."""
        return resident_bytes(self._process.pid)


def resident_bytes(pid: int | str = "self") -> int:
    """Return the resident memory of a process; 0 if it has ended."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, IndexError):
        return 0
