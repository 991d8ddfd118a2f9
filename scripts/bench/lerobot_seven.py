"""A LeRobot plug-in in one file: seven joints and a gripper that follow commands exactly."""

import time
from dataclasses import dataclass
from typing import Any

from lerobot.robots import Robot, RobotConfig

from drivers.ideal import Q_HOME


@RobotConfig.register_subclass("seven")
@dataclass
class SevenConfig(RobotConfig):
    # How long its bus takes to be read [s].
    read_s: float = 0.005


class Seven(Robot):
    """As an Arm of seven joints in rad, and a gripper in metres."""

    config_class = SevenConfig
    name = "seven"
    is_connected = False
    is_calibrated = True

    def __init__(self, config: SevenConfig) -> None:
        super().__init__(config)
        self.config = config
        self._state = {f"joint_{i + 1}.pos": float(q) for i, q in enumerate(Q_HOME)} | {"gripper.pos": 0.04}

    @property
    def observation_features(self) -> dict[str, Any]:
        return dict.fromkeys(self._state, float)

    @property
    def action_features(self) -> dict[str, Any]:
        return dict.fromkeys(self._state, float)

    def connect(self, calibrate: bool = True) -> None:
        self.is_connected = True

    def calibrate(self) -> None:
        pass

    def configure(self) -> None:
        pass

    def get_observation(self) -> dict[str, Any]:
        time.sleep(self.config.read_s)
        return dict(self._state)

    def send_action(self, action: dict[str, Any]) -> dict[str, Any]:
        self._state |= action
        return action

    def disconnect(self) -> None:
        self.is_connected = False
