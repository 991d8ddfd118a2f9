"""Real-time runtime for learned robot policies: asynchronous action chunks, realigned to the robot.

A name is imported when it is first used: the command line handles Ctrl-C before anything large is loaded.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from robot_runtime.core.env import Env, EnvInfo, EnvStep
    from robot_runtime.core.executor import Executor
    from robot_runtime.core.method.table import METHODS, Method, method_named
    from robot_runtime.core.plan.limits import Limits, MotionLimits
    from robot_runtime.core.policy import ChunkRequest, Policy, policy
    from robot_runtime.core.policy_info import PolicyInfo
    from robot_runtime.core.robot import Arm, ArmState, BaseState, Camera, Gripper, MobileBase
    from robot_runtime.core.tick import Tick
    from robot_runtime.core.values.action import (
        ActionChunk,
        ActionSpec,
        Command,
        GripperWidth,
        JointCommand,
        JointPosition,
    )
    from robot_runtime.core.values.schema import Schema
    from robot_runtime.core.values.state import Image, Observation, RobotState
    from robot_runtime.evaluation.evaluate import evaluate
    from robot_runtime.robot.client import PolicyClient
    from robot_runtime.robot.config import RunConfig
    from robot_runtime.robot.robot import Robot
    from robot_runtime.robot.run import Session, run
    from robot_runtime.server.server import PolicyServer, serve

_MODULE_OF = {
    "METHODS": "core.method.table",
    "ActionChunk": "core.values.action",
    "ActionSpec": "core.values.action",
    "Arm": "core.robot",
    "ArmState": "core.robot",
    "BaseState": "core.robot",
    "Camera": "core.robot",
    "ChunkRequest": "core.policy",
    "Command": "core.values.action",
    "Env": "core.env",
    "EnvInfo": "core.env",
    "EnvStep": "core.env",
    "Executor": "core.executor",
    "Gripper": "core.robot",
    "GripperWidth": "core.values.action",
    "Image": "core.values.state",
    "JointCommand": "core.values.action",
    "JointPosition": "core.values.action",
    "Limits": "core.plan.limits",
    "Method": "core.method.table",
    "MobileBase": "core.robot",
    "MotionLimits": "core.plan.limits",
    "Observation": "core.values.state",
    "Policy": "core.policy",
    "PolicyClient": "robot.client",
    "PolicyInfo": "core.policy_info",
    "PolicyServer": "server.server",
    "Robot": "robot.robot",
    "RobotState": "core.values.state",
    "RunConfig": "robot.config",
    "Schema": "core.values.schema",
    "Session": "robot.run",
    "Tick": "core.tick",
    "evaluate": "evaluation.evaluate",
    "method_named": "core.method.table",
    "policy": "core.policy",
    "run": "robot.run",
    "serve": "server.server",
}

__all__ = [
    "METHODS",
    "ActionChunk",
    "ActionSpec",
    "Arm",
    "ArmState",
    "BaseState",
    "Camera",
    "ChunkRequest",
    "Command",
    "Env",
    "EnvInfo",
    "EnvStep",
    "Executor",
    "Gripper",
    "GripperWidth",
    "Image",
    "JointCommand",
    "JointPosition",
    "Limits",
    "Method",
    "MobileBase",
    "MotionLimits",
    "Observation",
    "Policy",
    "PolicyClient",
    "PolicyInfo",
    "PolicyServer",
    "Robot",
    "RobotState",
    "RunConfig",
    "Schema",
    "Session",
    "Tick",
    "evaluate",
    "method_named",
    "policy",
    "run",
    "serve",
]


def __getattr__(name: str) -> object:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULE_OF[name]}"), name)
