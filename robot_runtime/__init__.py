"""Real-time runtime for learned robot policies: asynchronous action chunks, realigned to the robot.

A name is imported when it is first used: the command line handles Ctrl-C before anything large is loaded.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from robot_runtime.core.executor import Executor, Tick
    from robot_runtime.core.method.table import METHODS, Method, method_named
    from robot_runtime.core.plan.limits import Limits
    from robot_runtime.core.plan.timeline import ChunkTimeline
    from robot_runtime.core.values.action import ActionChunk, ActionSpec, Command
    from robot_runtime.core.values.schema import Schema
    from robot_runtime.core.values.state import Image, Observation, RobotState
    from robot_runtime.core.values.waypoints import Waypoints
    from robot_runtime.robot.client import PolicyClient
    from robot_runtime.robot.robot import Robot
    from robot_runtime.robot.runner import RunConfig, Runner

_MODULE_OF = {
    "METHODS": "core.method.table",
    "ActionChunk": "core.values.action",
    "ActionSpec": "core.values.action",
    "ChunkTimeline": "core.plan.timeline",
    "Command": "core.values.action",
    "Executor": "core.executor",
    "Image": "core.values.state",
    "Limits": "core.plan.limits",
    "Method": "core.method.table",
    "Observation": "core.values.state",
    "PolicyClient": "robot.client",
    "Robot": "robot.robot",
    "RobotState": "core.values.state",
    "Runner": "robot.runner",
    "Schema": "core.values.schema",
    "RunConfig": "robot.runner",
    "Tick": "core.executor",
    "Waypoints": "core.values.waypoints",
    "method_named": "core.method.table",
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
    "RunConfig",
    "Runner",
    "Schema",
    "Tick",
    "Waypoints",
    "method_named",
]


def __getattr__(name: str) -> object:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULE_OF[name]}"), name)
