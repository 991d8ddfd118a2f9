"""Real-time runtime for learned robot policies: asynchronous action chunks, realigned to the robot.

A name is imported when it is first used: the command line handles Ctrl-C before anything large is loaded.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from robot_runtime.client import PolicyClient
    from robot_runtime.core.action import ActionChunk, ActionSpec, Command
    from robot_runtime.core.executor import Executor, Tick
    from robot_runtime.core.limits import Limits
    from robot_runtime.core.method import METHODS, Method, method_named
    from robot_runtime.core.schema import Schema
    from robot_runtime.core.state import Image, Observation, RobotState
    from robot_runtime.core.timeline import ChunkTimeline
    from robot_runtime.core.waypoints import Waypoints
    from robot_runtime.robot import Robot
    from robot_runtime.runner import Runner, Setting

_MODULE_OF = {
    "METHODS": "core.method",
    "ActionChunk": "core.action",
    "ActionSpec": "core.action",
    "ChunkTimeline": "core.timeline",
    "Command": "core.action",
    "Executor": "core.executor",
    "Image": "core.state",
    "Limits": "core.limits",
    "Method": "core.method",
    "Observation": "core.state",
    "PolicyClient": "client",
    "Robot": "robot",
    "RobotState": "core.state",
    "Runner": "runner",
    "Schema": "core.schema",
    "Setting": "runner",
    "Tick": "core.executor",
    "Waypoints": "core.waypoints",
    "method_named": "core.method",
}

__all__ = [
    "METHODS",
    "ActionChunk",
    "ActionSpec",
    "ChunkTimeline",
    "Command",
    "Executor",
    "Image",
    "Limits",
    "Method",
    "Observation",
    "PolicyClient",
    "Robot",
    "RobotState",
    "Runner",
    "Schema",
    "Setting",
    "Tick",
    "Waypoints",
    "method_named",
]


def __getattr__(name: str) -> object:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULE_OF[name]}"), name)
