"""A gateway as a process of its own, so that untrusted input can neither starve nor crash robots.

serve                                              python -m robot_runtime.server.gateways.process
  GatewayProcess ── settings, one line of JSON ──►   limits of memory and files, lower priority
                 ◄─ {"address": ...} or {"error": ...}
                    the pipe closes ─────────────►   ends
  restarts it if it ended by itself

SIGINT and SIGTERM are for the server alone, which may have robots to answer before it ends its gateways:
service managers and terminals send them to all processes at once.
"""

import contextlib
import json
import logging
import os
import resource
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from threading import Event, Lock, Thread, Timer
from types import TracebackType
from typing import Any

import msgspec
from msgspec import Struct

from robot_runtime.core.policy_info import PolicyInfo
from robot_runtime.errors import InvalidValueError, RobotRuntimeError, ServerUnavailableError
from robot_runtime.keys import RobotKeys
from robot_runtime.server.gateways.key_map import Client, KeyMap
from robot_runtime.server.gateways.lerobot_messages import Checkpoint
from robot_runtime.server.gateways.policy_session import whole_sampler

logger = logging.getLogger(__name__)
MAX_MEMORY = 2 * 1024**3
"""Maximum size of a gateway's data segment [bytes]."""
MAX_FILES = 512
NICENESS = 5
_START_S = 60.0
_END_S = 1.0
_SOONEST_S, _LATEST_S = 0.5, 10.0  # until one that ended by itself is restarted


class Settings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of a gateway, as they are sent to its process."""

    kind: Client
    server: str
    """Address of our server."""
    address: str
    """HOST:PORT to listen at."""
    policies: list[dict[str, Any]]
    names: KeyMap | None = None
    checkpoints: dict[str, Checkpoint] = {}
    token: str | None = None
    keys: str | None = None
    tls: tuple[str, str] | None = None
    is_open: bool = False


class GatewayProcess:
    """A gateway that runs until it is closed. A context manager; listens once it is constructed."""

    def __init__(self, settings: Settings) -> None:
        """InvalidValueError: in the gateway's words, what is wrong with its settings.

        ServerUnavailableError: it did not start.
        """
        self._settings = settings
        self._is_closing = Event()
        self._lock = Lock()  # between a restart and the end
        self._process = self._started()
        self._watcher = Thread(target=self._watch, name=f"{settings.kind}-gateway", daemon=True)
        self._watcher.start()

    @property
    def address(self) -> str:
        """Where it listens, with the port that was chosen."""
        return self._settings.address

    def __enter__(self) -> "GatewayProcess":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def begin_to_end(self) -> None:
        """Ask it to end, without waiting."""
        self._is_closing.set()
        with self._lock:
            _close_pipes(self._process)

    def close(self) -> None:
        """End it in order, or kill it after a second."""
        self.begin_to_end()
        _end(self._process)
        self._watcher.join(_END_S)

    def _started(self) -> subprocess.Popen:
        command = [sys.executable, "-m", "robot_runtime.server.gateways.process"]
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
        )
        assert process.stdin is not None
        try:
            process.stdin.write(msgspec.json.encode(self._settings) + b"\n")
            process.stdin.flush()
            report = _first_line(process)
        except BaseException:
            _end(process)
            raise
        if "address" not in report:
            _end(process)
            if "missing" in report:
                raise ModuleNotFoundError(report["error"], name=report["missing"])
            raise InvalidValueError(report["error"])
        self._settings = msgspec.structs.replace(self._settings, address=report["address"])
        return process

    def _watch(self) -> None:
        wait_s, kind = _SOONEST_S, self._settings.kind
        while True:
            began_s = time.monotonic()
            code = self._process.wait()
            if self._is_closing.is_set():
                return
            logger.error("the %s gateway ended (exit code %d); it is restarted", kind, code)
            if time.monotonic() > began_s + _LATEST_S:
                wait_s = _SOONEST_S
            while not self._is_closing.wait(wait_s):
                wait_s = min(2 * wait_s, _LATEST_S)
                try:
                    with self._lock:
                        if not self._is_closing.is_set():
                            self._process = self._started()
                    break
                except (RobotRuntimeError, OSError, ValueError) as error:
                    logger.error("the %s gateway does not start: %s", kind, error)


def _first_line(process: subprocess.Popen) -> dict[str, str]:
    assert process.stdout is not None
    ready, _, _ = select.select([process.stdout], [], [], _START_S)
    line = process.stdout.readline() if ready else b""
    if not line:
        raise ServerUnavailableError(f"a gateway did not start within {_START_S:g} s: see its log")
    return json.loads(line)


def _close_pipes(process: subprocess.Popen) -> None:
    for pipe in (process.stdin, process.stdout):
        with contextlib.suppress(OSError):
            assert pipe is not None
            pipe.close()


def _end(process: subprocess.Popen) -> None:
    _close_pipes(process)
    try:
        process.wait(_END_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


# ---- in its own process --------------------------------------------------------------------------------


def gateway_of(settings: Settings) -> Any:
    """The gateway, listening; RobotRuntimeError reports why it cannot."""
    served = {policy.name: policy for policy in map(PolicyInfo.from_dict, settings.policies)}
    for policy in served.values():
        whole_sampler(policy)
    keys = None if settings.keys is None else RobotKeys.load(Path(settings.keys))
    common: dict[str, Any] = {
        "server": settings.server,
        "address": settings.address,
        "names": settings.names,
        "keys": keys,
    }
    match settings.kind:
        case "openpi":
            from robot_runtime.server.gateways.openpi import OpenpiGateway

            return OpenpiGateway(served, token=settings.token, is_open=settings.is_open, **common)
        case "lerobot":
            from robot_runtime.server.gateways.lerobot import LeRobotGateway

            tls = None if settings.tls is None else (Path(settings.tls[0]), Path(settings.tls[1]))
            return LeRobotGateway(served, tls=tls, checkpoints=settings.checkpoints, **common)
        case "groot":
            from robot_runtime.server.gateways.groot import GrootGateway

            first = next(iter(served.values()))
            return GrootGateway(first, token=settings.token, is_open=settings.is_open, **common)


def _limit() -> None:
    """Limit the machine resources of this process."""
    os.nice(NICENESS)
    for what, most in (
        (resource.RLIMIT_DATA, MAX_MEMORY),
        (resource.RLIMIT_NOFILE, MAX_FILES),
        (resource.RLIMIT_CORE, 0),
    ):
        hard = resource.getrlimit(what)[1]
        most = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(what, (most, most))


def main() -> int:
    """Listen as the first line of stdin declares, until stdin ends."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(levelname)s %(message)s")
    _limit()
    settings = msgspec.json.decode(sys.stdin.buffer.readline(), type=Settings)
    try:
        gateway = gateway_of(settings)
    except RobotRuntimeError as error:
        print(json.dumps({"error": str(error)}), flush=True)  # noqa: T201
        return 1
    except ModuleNotFoundError as error:
        print(json.dumps({"error": str(error), "missing": error.name}), flush=True)  # noqa: T201
        return 1
    print(json.dumps({"address": gateway.address}), flush=True)  # noqa: T201
    try:
        sys.stdin.buffer.read(1)
    finally:
        Timer(0.8 * _END_S, os._exit, (0,)).start()  # even if a client's thread still waits
        gateway.__exit__(None, None, None)
        os._exit(0)


if __name__ == "__main__":
    sys.exit(main())
