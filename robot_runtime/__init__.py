"""Real-time runtime for learned robot policies: asynchronous action chunks, realigned to the robot.

A name is imported when it is first used: the command line handles Ctrl-C before anything large is loaded.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from robot_runtime.core.arming import ArmingRules
    from robot_runtime.core.camera_watch import CameraLimits
    from robot_runtime.core.configuration import Configuration
    from robot_runtime.core.env import Env, EnvInfo, EnvStep, RobotEnv
    from robot_runtime.core.executor import Executor
    from robot_runtime.core.method.capabilities import Capabilities
    from robot_runtime.core.method.sampler_parts import ClampedPrefix, ConstantSchedule, HorizonAwareSchedule
    from robot_runtime.core.method.table import METHODS, Method, method_named
    from robot_runtime.core.plan.limits import (
        BaseLimits,
        GripperLimits,
        JointLimits,
        Limits,
        MotionLimits,
        NumbersLimits,
    )
    from robot_runtime.core.policy import ChunkRequest, Policy, policy
    from robot_runtime.core.policy_info import PolicyInfo
    from robot_runtime.core.robot import Arm, ArmState, BaseState, Camera, Gripper, MobileBase, Sensor, Switch
    from robot_runtime.core.state_watch import StateLimits
    from robot_runtime.core.tick import Tick
    from robot_runtime.core.values.action import ActionChunk, ActionSpec, RowTiming
    from robot_runtime.core.values.command import (
        BasePoseCommand,
        BaseTwistCommand,
        Command,
        GripperCommand,
        JointCommand,
        JointVelocityCommand,
        PoseCommand,
    )
    from robot_runtime.core.values.fields import (
        BasePose,
        BaseTwist,
        EndEffectorPose,
        GripperFraction,
        GripperWidth,
        JointPosition,
        JointVelocity,
        Numbers,
        Reference,
        Rotation,
        WorldEndEffectorPose,
    )
    from robot_runtime.core.values.schema import ArmSchema, BaseSchema, GripperSchema, Schema
    from robot_runtime.core.values.state import Image, Observation, RobotState
    from robot_runtime.evaluation.evaluate import evaluate
    from robot_runtime.evaluation.traces import LatencyTrace
    from robot_runtime.keys import RobotKeys
    from robot_runtime.log.config import LastSeconds, LogConfig
    from robot_runtime.log.reader import RunLog
    from robot_runtime.robot.client import PolicyClient
    from robot_runtime.robot.config import RunConfig
    from robot_runtime.robot.robot import Robot
    from robot_runtime.robot.run import Session, run
    from robot_runtime.robot_file import open_robot
    from robot_runtime.server.server import PolicyServer, serve

_MODULE_OF = {
    "METHODS": "core.method.table",
    "ActionChunk": "core.values.action",
    "ActionSpec": "core.values.action",
    "Arm": "core.robot",
    "ArmSchema": "core.values.schema",
    "ArmingRules": "core.arming",
    "ArmState": "core.robot",
    "BaseLimits": "core.plan.limits",
    "BasePose": "core.values.fields",
    "BasePoseCommand": "core.values.command",
    "BaseSchema": "core.values.schema",
    "BaseState": "core.robot",
    "BaseTwist": "core.values.fields",
    "BaseTwistCommand": "core.values.command",
    "Camera": "core.robot",
    "CameraLimits": "core.camera_watch",
    "Capabilities": "core.method.capabilities",
    "ChunkRequest": "core.policy",
    "ClampedPrefix": "core.method.sampler_parts",
    "Command": "core.values.command",
    "Configuration": "core.configuration",
    "ConstantSchedule": "core.method.sampler_parts",
    "EndEffectorPose": "core.values.fields",
    "Env": "core.env",
    "EnvInfo": "core.env",
    "EnvStep": "core.env",
    "Executor": "core.executor",
    "Gripper": "core.robot",
    "GripperCommand": "core.values.command",
    "GripperFraction": "core.values.fields",
    "GripperLimits": "core.plan.limits",
    "GripperSchema": "core.values.schema",
    "GripperWidth": "core.values.fields",
    "HorizonAwareSchedule": "core.method.sampler_parts",
    "Image": "core.values.state",
    "JointCommand": "core.values.command",
    "JointLimits": "core.plan.limits",
    "JointPosition": "core.values.fields",
    "JointVelocity": "core.values.fields",
    "JointVelocityCommand": "core.values.command",
    "LastSeconds": "log.config",
    "LatencyTrace": "evaluation.traces",
    "Limits": "core.plan.limits",
    "LogConfig": "log.config",
    "Method": "core.method.table",
    "MobileBase": "core.robot",
    "MotionLimits": "core.plan.limits",
    "Numbers": "core.values.fields",
    "NumbersLimits": "core.plan.limits",
    "Observation": "core.values.state",
    "Policy": "core.policy",
    "PolicyClient": "robot.client",
    "PolicyInfo": "core.policy_info",
    "PolicyServer": "server.server",
    "PoseCommand": "core.values.command",
    "Reference": "core.values.fields",
    "Robot": "robot.robot",
    "RobotEnv": "core.env",
    "RobotKeys": "keys",
    "RobotState": "core.values.state",
    "Rotation": "core.values.fields",
    "RowTiming": "core.values.action",
    "RunConfig": "robot.config",
    "RunLog": "log.reader",
    "Schema": "core.values.schema",
    "Sensor": "core.robot",
    "Session": "robot.run",
    "StateLimits": "core.state_watch",
    "Switch": "core.robot",
    "Tick": "core.tick",
    "WorldEndEffectorPose": "core.values.fields",
    "evaluate": "evaluation.evaluate",
    "method_named": "core.method.table",
    "open_robot": "robot_file",
    "policy": "core.policy",
    "run": "robot.run",
    "serve": "server.server",
}

__all__ = [
    "METHODS",
    "ActionChunk",
    "ActionSpec",
    "Arm",
    "ArmSchema",
    "ArmState",
    "ArmingRules",
    "BaseLimits",
    "BasePose",
    "BasePoseCommand",
    "BaseSchema",
    "BaseState",
    "BaseTwist",
    "BaseTwistCommand",
    "Camera",
    "CameraLimits",
    "Capabilities",
    "ChunkRequest",
    "ClampedPrefix",
    "Command",
    "Configuration",
    "ConstantSchedule",
    "EndEffectorPose",
    "Env",
    "EnvInfo",
    "EnvStep",
    "Executor",
    "Gripper",
    "GripperCommand",
    "GripperFraction",
    "GripperLimits",
    "GripperSchema",
    "GripperWidth",
    "HorizonAwareSchedule",
    "Image",
    "JointCommand",
    "JointLimits",
    "JointPosition",
    "JointVelocity",
    "JointVelocityCommand",
    "LastSeconds",
    "LatencyTrace",
    "Limits",
    "LogConfig",
    "Method",
    "MobileBase",
    "MotionLimits",
    "Numbers",
    "NumbersLimits",
    "Observation",
    "Policy",
    "PolicyClient",
    "PolicyInfo",
    "PolicyServer",
    "PoseCommand",
    "Reference",
    "Robot",
    "RobotEnv",
    "RobotKeys",
    "RobotState",
    "Rotation",
    "RowTiming",
    "RunConfig",
    "RunLog",
    "Schema",
    "Sensor",
    "Session",
    "StateLimits",
    "Switch",
    "Tick",
    "WorldEndEffectorPose",
    "evaluate",
    "method_named",
    "open_robot",
    "policy",
    "run",
    "serve",
]


def __getattr__(name: str) -> object:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULE_OF[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
