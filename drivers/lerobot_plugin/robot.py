"""A robot of this project as LeRobot's `Robot`. `drivers.lerobot_plugin` describes what stops it."""

import contextlib
from collections.abc import Mapping
from typing import Any, Literal, cast

from lerobot.robots import Robot as LeRobotRobot

from drivers.lerobot.part_numbers import PartNumbers
from drivers.lerobot_plugin.config_robot_runtime import RobotRuntimeConfig
from drivers.lerobot_plugin.features import tables_of
from drivers.lerobot_plugin.follower import Follower, measured_numbers
from robot_runtime.clock import MonotonicClock
from robot_runtime.core.robot import Camera
from robot_runtime.errors import DriverError, InvalidValueError
from robot_runtime.robot.cameras import Cameras, camera_threads
from robot_runtime.robot.check import check_robot
from robot_runtime.robot.robot import Robot
from robot_runtime.robot_file import open_robot


class RobotRuntime(LeRobotRobot):
    """A robot of a file or of the user's code, for LeRobot's commands."""

    config_class = RobotRuntimeConfig
    name = "robot_runtime"

    def __init__(self, config: RobotRuntimeConfig) -> None:
        """Make the drivers, which define the features; move nothing.

        RobotRuntimeError: as from `robot-runtime run`.
        """
        super().__init__(config)
        self.config, self._clock = config, MonotonicClock()
        self._follower: Follower | None = None
        self._cameras: Cameras | None = None
        self._opened = contextlib.ExitStack()
        try:
            self._robot: Robot = self._opened.enter_context(open_robot(config.robot, config.settings)).robot
            state = check_robot(self._robot, self._clock)
            unit = cast(Literal["deg", "rad"], config.joint_unit)
            tables = tables_of(self._robot, state, names=config.names, joint_unit=unit)
            features = PartNumbers.features_of(tables)
            self._numbers = PartNumbers(tables, measured=features, commanded=features, others={})
        except BaseException:
            self._opened.close()
            raise
        self._features = dict.fromkeys(features, float)

    @property
    def cameras(self) -> Mapping[str, Camera]:
        """Name -> camera; LeRobot's commands count them."""
        return self._robot.cameras

    @property
    def observation_features(self) -> dict[str, Any]:
        pictures = {name: (*camera.size, 3) for name, camera in self._robot.cameras.items()}
        return {**self._features, **pictures}

    @property
    def action_features(self) -> dict[str, Any]:
        return dict(self._features)

    @property
    def is_connected(self) -> bool:
        return self._follower is not None

    @property
    def is_calibrated(self) -> bool:
        return True

    def calibrate(self) -> None:
        """Do nothing: there is nothing to calibrate."""

    def configure(self) -> None:
        """Do nothing: the robot's own file configures it."""

    def connect(self, calibrate: bool = True) -> None:
        """Start to follow; move nothing. DriverError: a camera gives no image."""
        follower = Follower(
            self._robot, self._clock, control_hz=self.config.control_hz, silence_s=self.config.silence_s
        )
        self._cameras = self._opened.enter_context(camera_threads(self._robot.cameras, self._clock))
        if not self._cameras.await_first():
            raise DriverError(f"not every camera gives an image: {', '.join(self._robot.cameras)}")
        follower.start()
        self._opened.callback(follower.end)
        self._follower = follower

    def get_observation(self) -> dict[str, Any]:
        """Read state and images. DriverError: a driver has failed, or a camera gives no image."""
        follower = self._connected()
        assert self._cameras is not None
        images, faults = self._cameras.newest(self._clock.now_ns())
        if faults:
            raise DriverError("; ".join(self._cameras.said(name, fault) for name, fault in faults.items()))
        numbers = self._numbers.action(measured_numbers(self._robot, follower.state()))
        return numbers | {name: image.pixels for name, image in images.items()}

    def send_action(self, action: dict[str, Any]) -> dict[str, Any]:
        """Set targets; return them at once. The motion there keeps the limits.

        InvalidValueError: the action lacks features, which the message names; nothing moves.
        """
        follower = self._connected()
        if missing := [name for name in self._features if name not in action]:
            raise InvalidValueError(
                f"the action lacks {', '.join(missing)}: the leader, or the policy, gives "
                f"{', '.join(action) or 'nothing'}; this robot needs {', '.join(self._features)}"
            )
        targets = {name: float(action[name]) for name in self._features}
        follower.tell(self._numbers.read(targets))
        return targets

    def disconnect(self) -> None:
        """Brake, stop and close the drivers."""
        self._follower = None
        self._opened.close()

    def _connected(self) -> Follower:
        if self._follower is None:
            raise DriverError("the robot is not connected: connect() first")
        return self._follower
