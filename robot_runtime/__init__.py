"""Real-time runtime for learned robot policies: asynchronous action chunks, realigned to the robot."""

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
