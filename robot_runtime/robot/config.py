"""What stays the same for a run: `RunConfig`, the one place where its options are declared."""

import logging
from collections.abc import Callable
from dataclasses import dataclass, field

from robot_runtime.clock import Clock, MonotonicClock
from robot_runtime.core.camera_watch import CameraLimits
from robot_runtime.core.method.choose import Auto, Default, method_or_choice
from robot_runtime.core.method.table import Method
from robot_runtime.core.plan.correction import ResidualHead
from robot_runtime.core.state_watch import StateLimits
from robot_runtime.core.values.state import Observation, RobotState
from robot_runtime.errors import InvalidValueError
from robot_runtime.keys import RobotKeys
from robot_runtime.robot.robot import Robot
from robot_runtime.robot.telemetry import KEPT_TICKS
from robot_runtime.transport.address import DEFAULT_ADDRESS

_logger = logging.getLogger("robot_runtime.robot.run")
MAX_HZ = 10_000.0


@dataclass(frozen=True, kw_only=True, eq=False)
class RunConfig:
    """The robot, who is asked, what it is asked to do, and how its plan is run."""

    robot: Robot = field(kw_only=False)
    policy: str = DEFAULT_ADDRESS
    """Address of a policy server, tcp://HOST:PORT; of one of its policies by name, tcp://HOST:PORT/NAME."""
    task: str = ""
    """What to do, in words."""
    duration_s: float | None = None
    """How long to run [s]; None: until it is told to stop."""
    method: Method | Auto | Default | str | None = None
    """How action chunks are run, by name or as a value. None or "default": what the policy was trained for;
    "auto": what suits the policy and the measured delay."""
    execution_horizon: int | None = None
    """Rows of a chunk to run before the policy is asked again; as the method has it if None. Only for a
    method that is named."""
    control_hz: float = 500.0
    """Ticks of the control loop per second."""
    seed: int = 0
    """Of the policy's random numbers."""
    observe: Callable[[RobotState], Observation] | None = None
    """Adds scene quantities, or a task text that changes, to a state; pictures are added to what it returns.
    None: the state and `task`. Called in the control thread."""
    correction_head: ResidualHead | None = None
    """For methods that correct rows on the robot; it sees what `observe` makes of a state, no images."""
    name: str = "robot"
    """What the robot is called in the server's log."""
    keys: RobotKeys | None = None
    """For a server that asks for them."""
    jpeg_quality: int | None = None
    """Send pictures as JPEG of that quality, 1 to 100; None sends them raw."""
    connect_timeout_s: float = 10.0
    """How long to wait for the server to be ready [s]."""
    state_limits: StateLimits = field(default_factory=StateLimits)
    """What of the measured state is taken for a fault."""
    camera_limits: CameraLimits = field(default_factory=CameraLimits)
    """What of the pictures is."""
    keep_ticks: int | None = KEPT_TICKS
    """How many of the newest ticks the record keeps; None keeps all of a short run."""
    use_fifo: bool = True
    """Ask for SCHED_FIFO; where that is not allowed, the ordinary scheduler has to do and the log says so."""
    clock: Clock = field(default_factory=MonotonicClock)
    say: Callable[[str], None] = _logger.info
    """Gets a line when the server is there, before the latency is measured, and on the method."""

    def __post_init__(self) -> None:
        if not 0.0 < self.control_hz <= MAX_HZ:
            raise InvalidValueError(
                f"control_hz takes a number above 0, up to {MAX_HZ:g}, got {self.control_hz}"
            )
        if self.duration_s is not None and not self.duration_s > 0.0:
            raise InvalidValueError(f"duration_s takes a number above 0, or None, got {self.duration_s}")
        _ = self.method_or_choice

    @property
    def method_or_choice(self) -> Method | Auto | Default:
        """The method, or how it is chosen once the policy is known; UnknownNameError: there is no such."""
        match self.method:
            case None:
                return Default(execution_horizon=self.execution_horizon)
            case str(name):
                return method_or_choice(name, execution_horizon=self.execution_horizon)
            case method:
                return method

    def observation(self, state: RobotState) -> Observation:
        """What a state shows, without pictures."""
        return Observation(state=state, task=self.task) if self.observe is None else self.observe(state)
