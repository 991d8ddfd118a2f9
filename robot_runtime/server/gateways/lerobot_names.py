"""Matches the names of a LeRobot robot to what a policy needs: by name, never by position."""

import re
from collections.abc import Mapping, Sequence

from robot_runtime.core.policy_info import PolicyInfo
from robot_runtime.core.values.action import GripperFraction, GripperWidth, JointPosition, JointVelocity
from robot_runtime.core.values.columns import POSE, TWIST, quantity_columns
from robot_runtime.core.values.schema import ArmSchema, BaseSchema, GripperSchema, PartSchema, Schema
from robot_runtime.core.values.state import ARM, GRIPPER
from robot_runtime.dataset.recording import PICTURE, STATE, camera_of
from robot_runtime.server.gateways.entries import Entry
from robot_runtime.server.gateways.key_map import KeyMap
from robot_runtime.server.gateways.lerobot_messages import Instructions
from robot_runtime.server.gateways.part_entries import PartEntries
from robot_runtime.server.gateways.values import listed

MOVED = (JointPosition, JointVelocity, GripperWidth, GripperFraction)
"""Fields for which LeRobot's robots have numbers."""
MOTOR = ".pos"
"""Suffix of the names of a robot's motors whose positions are its actions too."""


def names_of(schema: Schema, state_names: Sequence[str], cameras: Mapping[str, str]) -> KeyMap:
    """Where a robot has what the policy needs, if it uses the names of our recordings or those of LeRobot's
    robots: with `.pos`, by the joint alone, with left_ and right_ before the names of two arms."""
    known = set(state_names)
    parts = {name: _entries(name, part, schema, known) for name, part in schema.parts.items()}
    return KeyMap(
        parts={name: own for name, own in parts.items() if own != PartEntries()},
        measured={
            name: Entry(names=columns)
            for name, size in schema.measured.items()
            if known.issuperset(columns := quantity_columns(name, size))
        },
        cameras={name: cameras[name] for name in schema.cameras if name in cameras},
        task="task",
        fit="stretch",
    )


def _entries(name: str, part: PartSchema, schema: Schema, known: set[str]) -> PartEntries:
    """The entries of one part, if all of it is there."""

    def found(*candidates: str) -> str | None:
        return next((n for each in candidates for n in (each, each + MOTOR) if n in known), None)

    match part:
        case ArmSchema(names=joints):
            side = name.removesuffix(f"_{ARM}")
            alone = [name] * (len(schema.arms) == 1)
            called = [
                found(f"{name}.{joint}", f"{name}_{joint}", f"{side}_{joint}", *([joint] if alone else []))
                for joint in joints
            ]
            if None in called and name == ARM:
                called = [found(f"joint_{i}") for i in range(len(joints))]  # of before parts had names
            all_called = tuple(filter(None, called))
            return PartEntries(q=Entry(names=all_called)) if len(all_called) == len(joints) else PartEntries()
        case GripperSchema():
            older = ("gripper_width",) if name == GRIPPER else ()
            one = found(f"{name}.{GripperSchema.names[0]}", *older, name)
            return PartEntries() if one is None else PartEntries(width=Entry(names=(one,)))
        case BaseSchema():
            pose, twist = ([f"{name}.{column}" for column in columns] for columns in (POSE, TWIST))
            return PartEntries(
                pose=Entry(names=tuple(pose)) if known.issuperset(pose) else None,
                twist=Entry(names=tuple(twist)) if known.issuperset(twist) else None,
            )


def refuse_unknown_unit(names: KeyMap) -> None:
    """ValueError: the unit of the joints is undeclared. LeRobot's robots have degrees, per cent or rad under
    the same names; those of our recordings are rad."""
    arms = [own.q for own in names.entries.values() if own.q is not None]
    called = [name for entry in arms if entry.linear() is None for name in entry.names]
    is_declared = names.joint_unit or names.convention
    if not is_declared and not all(map(_is_ours, called)):
        raise ValueError(
            f"the unit of {listed(called)} is undeclared: declare "
            '"joint_unit" ("rad", "deg", "percent") or "convention" in the file of --names'
        )


def _is_ours(name: str) -> bool:
    """Whether recordings use this name for a joint, now or before parts had names."""
    return re.fullmatch(r"(\w+\.)?joint_\d+", name) is not None


def declared_names_given(instructions: Instructions) -> tuple[tuple[str, ...], dict[str, str]]:
    """Names of the state, and for each camera of the policy the robot's name."""
    features, renamed = instructions.features, instructions.renamed
    state = features.get(STATE)
    named = state.get("names") if isinstance(state, dict) else None
    if not isinstance(named, list | tuple) or not all(isinstance(name, str) for name in named):
        raise ValueError(f"lerobot_features has no {STATE!r} with names, but {listed(features)}")
    if twice := sorted({name for name in named if list(named).count(name) > 1}):
        raise ValueError(f"{STATE!r} has two numbers of one name, {listed(twice)}")
    if other := [key for it in renamed.items() for key in it if not key.startswith(PICTURE)]:
        raise ValueError(f"a rename_map is supported for images only, got {listed(other)}")
    keys = [str(key) for key in features if str(key).startswith(PICTURE)]
    return tuple(named), {camera_of(renamed.get(key, key)): camera_of(key) for key in keys}


def order_of_columns(policy: PolicyInfo, names: KeyMap, state_names: Sequence[str]) -> list[int]:
    """Our columns in the robot's order, which is that of its state: LeRobot's actions follow it.
    ValueError."""
    called: list[str] = []
    entries, joints = names.entries, list[str]()
    for own in entries.values():
        joints += own.q.names if own.q else ()
    for f in policy.action_spec.fields:
        own = entries.get(f.part, PartEntries())
        match f:
            case JointPosition() | JointVelocity():
                called += own.q.names if own.q else ()
            case GripperWidth() | GripperFraction():
                called += own.width.names if own.width else ()
            case _:
                raise ValueError(f"policy {policy.name!r} moves more than joints and grippers")
    wanted = [*called, *joints]
    if len(called) != policy.action_spec.dim or (missing := set(wanted) - set(state_names)):
        dim = policy.action_spec.dim
        lacks = f", and lacks {listed(sorted(missing))}" if len(called) == dim else ""
        raise ValueError(
            f"policy {policy.name!r} moves {dim} numbers by name; the robot's are "
            f"{listed(state_names)}{lacks}: declare which is which in the file of --names, "
            '{"q": {"names": [...]}, "gripper_width": {"names": [...]}}, or '
            '{"parts": {"left_arm": {"q": {"names": [...]}}, ...}}'
        )
    if unmoved := [name for name in state_names if name.endswith(MOTOR) and name not in called]:
        raise ValueError(
            f"policy {policy.name!r} does not move {listed(unmoved)}: a LeRobot robot takes actions by "
            "their positions, one for each of its motors"
        )
    if len(set(called)) != len(called):
        raise ValueError("the file of --names gives one of the robot's names two meanings")
    return sorted(range(len(called)), key=lambda i: state_names.index(called[i]))
