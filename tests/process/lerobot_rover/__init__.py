"""Registers its types with LeRobot when it is imported, as plug-ins do."""

from tests.process.lerobot_rover.devices import (
    Leader,
    LeaderConfig,
    Rover,
    RoverConfig,
    Stripes,
    StripesConfig,
)

__all__ = ["Leader", "LeaderConfig", "Rover", "RoverConfig", "Stripes", "StripesConfig"]
