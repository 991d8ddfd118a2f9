"""What stays the same for a run: `RunConfig`, the one place where its options are declared."""

import logging
from collections.abc import Callable
from dataclasses import dataclass, field, replace

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
from robot_runtime.robot.after_release import AfterRelease
from robot_runtime.robot.robot import Robot
from robot_runtime.robot.telemetry import KEPT_TICKS
from robot_runtime.robot.watched_switch import check_hold_to_run, check_switch
from robot_runtime.teleop.config import TeleopConfig
from robot_runtime.teleop.watched import check_teleoperator
from robot_runtime.transport.address import DEFAULT_ADDRESS

_logger = logging.getLogger("robot_runtime.robot.run")
MAX_HZ = 10_000.0


@dataclass(frozen=True, kw_only=True, eq=False)
class RunConfig:
    """The robot, who is asked, what it is asked to do, and how its plan is run."""

    robot: Robot = field(kw_only=False)
    policy: str | None = DEFAULT_ADDRESS
    """Address of a policy server, tcp://HOST:PORT; of one of its policies by name, tcp://HOST:PORT/NAME.
    None: nobody is asked, a person drives with `teleop`."""
    task: str = ""
    """What to do, in words."""
    duration_s: float | None = None
    """How long to run [s], once it is armed; None: until it is told to stop."""
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
    model: str = ""
    """What the robot looks like, for pages and logs: a .urdf file or a .xml file of MuJoCo's."""
    keys: RobotKeys | None = None
    """For a server that asks for them."""
    jpeg_quality: int | None = None
    """Send pictures as JPEG of that quality, 1 to 100; None sends them raw."""
    connect_timeout_s: float = 10.0
    """How long to wait for the server to be ready [s]."""
    state_limits: StateLimits = field(default_factory=StateLimits)
    """What of the measured state is taken for a fault."""
    all_cameras: bool = False
    """Read every camera of the robot, for the log, whether or not the policy looks at it."""
    camera_limits: CameraLimits = field(default_factory=CameraLimits)
    """What of the pictures is."""
    arm: Switch | None = None
    """Nothing moves until this is pressed, once chunks come in time. None: the robot is armed from the start,
    unless `hold_to_run` or `arming` are given."""
    hold_to_run: Switch | None = None
    """Letting it go, or losing it, is STOP at the next tick. Without `arm`, pressing it arms."""
    arming: ArmingRules | None = None
    """What has to be there before the robot is armed; with neither switch, `Session.arm_now` arms it. None:
    the usual rules if there is a switch. The session closes the switches."""
    log: LogConfig | None = None
    """Where the run is logged, whole, by a thread of its own: see `log.config`. None: nowhere."""
    teleop: Teleoperator | None = None
    """What a person leads the robot with: what she engages follows her and not the policy. The session closes
    it."""
    teleop_config: TeleopConfig = field(default_factory=TeleopConfig)
    """Scales, speeds and frames of that, and what becomes of a part that she lets go."""
    after_release: AfterRelease = AfterRelease.CONTINUE
    """What becomes of an episode once a person has handed everything back that she had taken over."""
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
        """None: the robot needs no arming."""
        rules = self.arming
        if rules is None and (self.arm is not None or self.hold_to_run is not None):
            rules = ArmingRules()
        if rules is not None and self.policy is None:
            return replace(rules, fresh_chunks=0)
        return rules

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
