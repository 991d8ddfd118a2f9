"""`robot-runtime run`: the robot's side, in real time, against a server that is already up."""

import json
import logging
import signal
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from robot_runtime.cli.method_options import MethodOptions
from robot_runtime.transport import DEFAULT_ENDPOINT

if TYPE_CHECKING:
    from robot_runtime.runner import Runner
    from robot_runtime.wire.messages import Welcome
    from sim.world import World

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Run(MethodOptions):
    """Drive the simulated Franka in real time with the policy of a running server.

    Start `robot-runtime serve --policy track` in another terminal first.
    """

    task: str = "track"
    """What the robot does: track or pick_place."""
    server: str = DEFAULT_ENDPOINT
    """Where the server listens."""
    seed: int = 10_000
    """Draws the scene, and the noise of the policy."""
    control_hz: float = 500.0
    """Ticks of the control loop per second."""
    duration_s: float | None = None
    """How long to run [s]; the task's own time limit if not given."""
    connect_timeout_s: float = 10.0
    """How long to wait for the server to be ready [s]."""
    json: Path | None = None
    """Write the results to this file."""

    def main(self) -> int:
        from sim.realtime import SimulatedSetting

        setting = SimulatedSetting(
            task_name=self.task, method=self.method_parts(), seed=self.seed, control_hz=self.control_hz
        )
        runner = setting.run(
            server=self.server, duration_s=self.duration_s, connect_timeout_s=self.connect_timeout_s
        )
        return 0
