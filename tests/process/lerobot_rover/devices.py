"""A LeRobot plug-in as somebody might write one: a small mobile robot, a camera and a leader.

What goes wrong is told by files in a folder: `raise`, `nan`; what it is sent is the file `sent.json`.
"""

import json
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from lerobot.cameras import Camera, CameraConfig
from lerobot.robots import Robot, RobotConfig
from lerobot.teleoperators import Teleoperator, TeleoperatorConfig

NUMBERS = ("arm_lift.pos", "arm_gripper.pos", "x.vel", "y.vel", "theta.vel")


@RobotConfig.register_subclass("tests_rover")
@dataclass
class RoverConfig(RobotConfig):
    folder: str = ""
    asks: bool = False


class Rover(Robot):
    config_class = RoverConfig
    name = "tests_rover"

    def __init__(self, config: RoverConfig) -> None:
        super().__init__(config)
        self.config, self._folder = config, Path(config.folder)
        self._state = dict.fromkeys(NUMBERS, 0.0) | {"arm_gripper.pos": 50.0}
        self._is_connected, self._frames = False, 0

    @property
    def observation_features(self) -> dict[str, Any]:
        return dict.fromkeys(NUMBERS, float) | {"front": (48, 64, 3)}

    @property
    def action_features(self) -> dict[str, Any]:
        return dict.fromkeys(NUMBERS, float)

    @property
    def is_connected(self) -> bool:
        return self._is_connected

    @property
    def is_calibrated(self) -> bool:
        return True

    def connect(self) -> None:  # as a plug-in on PyPI has it: without `calibrate`
        if self.config.asks:
            input("Put it into the middle and press ENTER")
        self._is_connected = True

    def calibrate(self) -> None:
        raise AssertionError("nobody asked for that")

    def configure(self) -> None:
        pass

    def get_observation(self) -> dict[str, Any]:
        if (self._folder / "raise").exists():
            raise ConnectionError("no status packet")
        out: dict[str, Any] = dict(self._state)
        if (self._folder / "nan").exists():
            out["arm_lift.pos"] = float("nan")
        self._frames += 1
        return out | {"front": np.full((48, 64, 3), self._frames // 2 % 256, dtype=np.uint8)}

    def send_action(self, action: dict[str, Any]) -> None:
        assert set(action) == set(NUMBERS)
        print("sent", action)  # noqa: T201 - as another plug-in on PyPI does
        self._state |= action
        part = self._folder / "sent.part"
        part.write_text(json.dumps(action))
        os.replace(part, self._folder / "sent.json")

    def disconnect(self) -> None:
        self._is_connected = False
        (self._folder / "disconnected").touch()


@TeleoperatorConfig.register_subclass("tests_leader")
@dataclass
class LeaderConfig(TeleoperatorConfig):
    pass


class Leader(Teleoperator):
    config_class = LeaderConfig
    name = "tests_leader"
    is_connected = False
    is_calibrated = True
    feedback_features: dict[str, type] = {}  # noqa: RUF012

    @property
    def action_features(self) -> dict[str, type]:
        return {"lift.pos": float, "gripper.pos": float, "x.vel": float, "y.vel": float, "theta.vel": float}

    def connect(self, calibrate: bool = True) -> None:
        self.is_connected = True

    def calibrate(self) -> None:
        pass

    def configure(self) -> None:
        pass

    def get_action(self) -> dict[str, float]:
        return {"lift.pos": 90.0, "gripper.pos": 25.0, "x.vel": 0.1, "y.vel": 0.0, "theta.vel": 180.0}

    def send_feedback(self, feedback: dict[str, Any]) -> None:
        raise NotImplementedError

    def disconnect(self) -> None:
        self.is_connected = False


@CameraConfig.register_subclass("tests_camera")
@dataclass
class StripesConfig(CameraConfig):
    folder: str = ""


class Stripes(Camera):
    """Thirty pictures a second, each stamped 10 ms after it was taken, as LeRobot stamps them."""

    def __init__(self, config: StripesConfig) -> None:
        super().__init__(config)
        self.config, self._is_connected, self._count = config, False, 0
        self.latest_timestamp: float | None = None

    @property
    def is_connected(self) -> bool:
        return self._is_connected

    @staticmethod
    def find_cameras() -> list[dict[str, Any]]:
        return []

    def connect(self, warmup: bool = True) -> None:
        self._is_connected = True

    def read(self) -> np.ndarray:
        return self.async_read()

    def async_read(self, timeout_ms: float = 200) -> np.ndarray:
        if (Path(self.config.folder) / "raise").exists():
            raise TimeoutError("no frame")
        time.sleep(0.033)
        self._count += 1
        self.latest_timestamp = time.perf_counter()
        return np.full((self.config.height or 48, 64, 3), self._count % 256, dtype=np.uint8)

    def disconnect(self) -> None:
        self._is_connected = False
