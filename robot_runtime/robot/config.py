"""The configuration of a run: `RunConfig`, the one place where its options are declared."""

import logging
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from enum import Enum

from robot_runtime.clock import Clock, MonotonicClock
from robot_runtime.core.arming import ArmingRules
from robot_runtime.core.camera_watch import CameraLimits
from robot_runtime.core.method.choose import Auto, Default, method_or_choice
from robot_runtime.core.method.table import Method
from robot_runtime.core.plan.correction import ResidualHead
from robot_runtime.core.robot import Switch
from robot_runtime.core.state_watch import StateLimits
from robot_runtime.core.teleop import Teleoperator
from robot_runtime.core.values.state import Observation, RobotState
from robot_runtime.errors import InvalidValueError
from robot_runtime.keys import RobotKeys
from robot_runtime.log.config import LogConfig
from robot_runtime.robot.robot import Robot
from robot_runtime.robot.telemetry import KEPT_TICKS
from robot_runtime.robot.watched_switch import check_hold_to_run, check_switch
from robot_runtime.teleop.config import TeleopConfig
from robot_runtime.teleop.watched import check_teleoperator
from robot_runtime.transport.address import DEFAULT_ADDRESS


class AfterRelease(Enum):
    """An option of the session. Labels that depend on what the policy does after an intervention need
    CONTINUE; recovery-and-correction data (RaC) ends the episode there."""

    CONTINUE = "continue"
    """The policy and the episode continue."""
    END = "end"
    """The episode ends, UNKNOWN until its outcome is reported, and the robot holds until a reset."""


_logger = logging.getLogger("robot_runtime.robot.run")
MAX_HZ = 10_000.0


@dataclass(frozen=True, kw_only=True, eq=False)
class RunConfig:
    """The robot, the policy server, the task, and how plans are run."""

    robot: Robot = field(kw_only=False)
    policy: str | None = DEFAULT_ADDRESS
    """Address of a policy server, tcp://HOST:PORT; of one of its policies by name, tcp://HOST:PORT/NAME.
    None: no policy, a person drives with `teleop`."""
    task: str = ""
    """The task, in words."""
    duration_s: float | None = None
    """How long to run [s], once it is armed; None: until it is stopped."""
    method: Method | Auto | Default | str | None = None
    """How action chunks are run, by name or as a value. None or "default": as the policy was trained;
    "auto": what suits the policy and the measured delay."""
    execution_horizon: int | None = None
    """Rows of a chunk to run before the policy is asked again; the method's own if None. Only for a
    method that is named."""
    control_hz: float = 500.0
    """Ticks of the control loop per second."""
    seed: int = 0
    """Seed of the policy's random numbers."""
    observe: Callable[[RobotState], Observation] | None = None
    """Adds scene quantities, or a task text that changes, to a state; images are added to what it returns.
    None: the state and `task`. Called in the control thread."""
    correction_head: ResidualHead | None = None
    """For methods that correct rows on the robot; it gets what `observe` makes of a state, without images."""
    name: str = "robot"
    """The robot's name in the server's log."""
    model: str = ""
    """The robot's geometry, for pages and logs: a .urdf file, or an .xml file of MuJoCo."""
    keys: RobotKeys | None = None
    """Keys for a server that requires them."""
    jpeg_quality: int | None = None
    """Send images as JPEG of that quality, 1 to 100; None sends them raw."""
    connect_timeout_s: float = 10.0
    """How long to wait for the server to be ready [s]."""
    state_limits: StateLimits = field(default_factory=StateLimits)
    """What in the measured state counts as a fault."""
    all_cameras: bool = False
    """Read every camera of the robot, for the log, whether or not the policy uses it."""
    camera_limits: CameraLimits = field(default_factory=CameraLimits)
    """What in the images counts as a fault."""
    arm: Switch | None = None
    """Nothing moves until this is pressed, after chunks arrive in time. None: the robot is armed from the
    start, unless `hold_to_run` or `arming` are given."""
    hold_to_run: Switch | None = None
    """Releasing it, or losing it, causes STOP at the next tick. Without `arm`, pressing it arms."""
    arming: ArmingRules | None = None
    """What is required before the robot can be armed; with neither switch, `Session.arm_now` arms it. None:
    the usual rules if there is a switch. The session closes the switches."""
    log: LogConfig | None = None
    """Where the whole run is logged, by a separate thread: see `log.config`. None: no log."""
    teleop: Teleoperator | None = None
    """The device that a person drives the robot with: parts that it engages follow it and not the policy. The
    session closes it."""
    teleop_config: TeleopConfig = field(default_factory=TeleopConfig)
    """Scales, speeds and frames of teleoperation, and what happens to a part that is released."""
    after_release: AfterRelease = AfterRelease.CONTINUE
    """What happens to an episode once a person has handed back all the parts taken over."""
    keep_ticks: int | None = KEPT_TICKS
    """How many of the newest ticks the record keeps; None keeps all of a short run."""
    use_fifo: bool = True
    """Request SCHED_FIFO; where that is not allowed, the ordinary scheduler is used, which is logged."""
    clock: Clock = field(default_factory=MonotonicClock)
    say: Callable[[str], None] = _logger.info
    """Receives a line when the server is connected, before the latency is measured, and on the method."""

    def __post_init__(self) -> None:
        if not 0.0 < self.control_hz <= MAX_HZ:
            raise InvalidValueError(
                f"control_hz takes a number above 0, up to {MAX_HZ:g}, got {self.control_hz}"
            )
        if self.duration_s is not None and not self.duration_s > 0.0:
            raise InvalidValueError(f"duration_s takes a number above 0, or None, got {self.duration_s}")
        check_switch("arm", self.arm)
        check_hold_to_run(self.hold_to_run)
        if self.arm is not None and self.arm is self.hold_to_run:
            raise InvalidValueError("arm and hold_to_run are two switches: one that does both is hold_to_run")
        check_teleoperator(self.teleop)
        if self.policy is None and self.teleop is None:
            raise InvalidValueError(
                "without a policy a person has to drive: teleop=..., in a command --teleop"
            )
        _ = self.method_or_choice

    @property
    def arming_rules(self) -> ArmingRules | None:
        """The rules for arming; None: the robot needs no arming."""
        rules = self.arming
        if rules is None and (self.arm is not None or self.hold_to_run is not None):
            rules = ArmingRules()
        if rules is not None and self.policy is None:
            return replace(rules, fresh_chunks=0)
        return rules

    @property
    def method_or_choice(self) -> Method | Auto | Default:
        """The method, or how it is chosen once the policy is known; UnknownNameError: unknown method name."""
        match self.method:
            case None:
                return Default(execution_horizon=self.execution_horizon)
            case str(name):
                return method_or_choice(name, execution_horizon=self.execution_horizon)
            case method:
                return method

    def observation(self, state: RobotState) -> Observation:
        """Make the observation of a state, without images."""
        return Observation(state=state, task=self.task) if self.observe is None else self.observe(state)
