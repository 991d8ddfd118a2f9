"""Which of the names of a LeRobot robot are what a policy needs: by name, never by place."""

import re
from collections.abc import Mapping, Sequence

from robot_runtime.core.values.action import GripperWidth, JointPosition
from robot_runtime.core.values.schema import Schema
from robot_runtime.core.values.state import ARM
from robot_runtime.server.gateways.entries import Entry
from robot_runtime.server.gateways.key_map import KeyMap
from robot_runtime.server.gateways.lerobot_messages import Instructions
from robot_runtime.server.gateways.policy_session import Served
from robot_runtime.server.gateways.values import listed

STATE, PICTURES = "observation.state", "observation.images."
MOTOR = ".pos"
"""How the names of a robot's motors end, whose positions are its actions too."""


def names_of(schema: Schema, state_names: Sequence[str], cameras: Mapping[str, str]) -> KeyMap:
    """Where a robot has what the policy needs, as far as it calls it as our recordings do, or with `.pos`."""
    known = set(state_names)

    def found(*ours: str) -> str | None:
        return next((n for name in ours for n in (name, f"{name}.pos") if n in known), None)

    names = schema.arms[ARM].names if ARM in schema.arms else ()
    joints = [found(f"{ARM}.{name}", name) for name in names]
    if None in joints:
        joints = [found(f"joint_{i}") for i in range(len(names))]  # of before parts had names
    has_joints = joints and None not in joints
    gripper = found("gripper.width", "gripper_width", "gripper") if schema.has_gripper else None
    return KeyMap(
        q=Entry(names=tuple(filter(None, joints))) if has_joints else None,
        gripper_width=None if gripper is None else Entry(names=(gripper,)),
        cameras={name: cameras[name] for name in schema.cameras if name in cameras},
        task="task",
        fit="pad",
    )


def refuse_unknown_unit(names: KeyMap) -> None:
    """ValueError: nobody says in which unit the joints are. LeRobot's robots have degrees, per cent or rad
    under the same names; those of our recordings are rad."""
    called = () if names.q is None else names.q.names
    is_said = names.joint_unit or names.convention or (names.q is not None and names.q.linear())
    if not is_said and not all(map(_is_ours, called)):
        raise ValueError(
            f"nothing says in which unit {listed(called)} are: say "
            '"joint_unit" ("rad", "deg", "percent") or "convention" in the file of --names'
        )


def _is_ours(name: str) -> bool:
    """Whether recordings call a joint so, now or before parts had names."""
    return re.fullmatch(r"(\w+\.)?joint_\d+", name) is not None


def names_told(told_by: Instructions) -> tuple[tuple[str, ...], dict[str, str]]:
    """Of the state, and for each camera of the policy the robot's name."""
    features, renamed = told_by.features, told_by.renamed
    state = features.get(STATE)
    told = state.get("names") if isinstance(state, dict) else None
    if not isinstance(told, list | tuple) or not all(isinstance(name, str) for name in told):
        raise ValueError(f"lerobot_features has no {STATE!r} with names, but {listed(features)}")
    if other := [key for it in renamed.items() for key in it if not key.startswith(PICTURES)]:
        raise ValueError(f"rename_map is followed for pictures only, here are {listed(other)}")
    keys = [str(key) for key in features if str(key).startswith(PICTURES)]
    return tuple(told), {
        renamed.get(key, key).removeprefix(PICTURES): key.removeprefix(PICTURES) for key in keys
    }


def order_of_columns(policy: Served, names: KeyMap, state_names: Sequence[str]) -> list[int]:
    """Ours in the robot's order, which is that of its state: LeRobot has actions by it. ValueError."""
    called: list[str] = []
    for f in policy.info.action_spec.fields:
        match f:
            case JointPosition():
                called += names.q.names if names.q else ()
            case GripperWidth():
                called += names.gripper_width.names if names.gripper_width else ()
            case _:
                raise ValueError(f"policy {policy.info.name!r} moves more than joints and a gripper")
    wanted = [*called, *(names.q.names if names.q else ())]
    if len(called) != policy.info.action_spec.dim or (missing := set(wanted) - set(state_names)):
        dim = policy.info.action_spec.dim
        lacks = f", and lacks {listed(sorted(missing))}" if len(called) == dim else ""
        raise ValueError(
            f"policy {policy.info.name!r} moves {dim} numbers by name; the robot's are "
            f"{listed(state_names)}{lacks}: say which is which in the file of --names, "
            '{"q": {"names": [...]}, "gripper_width": {"names": [...]}}'
        )
    if unmoved := [name for name in state_names if name.endswith(MOTOR) and name not in called]:
        raise ValueError(
            f"policy {policy.info.name!r} does not move {listed(unmoved)}: a LeRobot robot takes actions by "
            "their places, one for each of its motors"
        )
    if len(set(called)) != len(called):
        raise ValueError("the file of --names gives one of the robot's names two meanings")
    return sorted(range(len(called)), key=lambda i: state_names.index(called[i]))
