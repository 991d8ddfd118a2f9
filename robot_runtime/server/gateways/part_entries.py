"""Maps one part of a robot to entries of a foreign observation: `PartEntries`, there and back.

an arm, or another group of joints    q, dq, hand_pose
a gripper                             width
a mobile base                         pose, twist
"""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pinocchio as pin
from msgspec import Struct, structs

from robot_runtime.core.values.conventions import Linear, convention_of
from robot_runtime.core.values.pose_rows import rotation_vectors
from robot_runtime.core.values.schema import ArmSchema, BaseSchema, GripperSchema, PartSchema, Schema
from robot_runtime.core.values.state import ArmState, BaseState, GripperState, PartState
from robot_runtime.core.values.transforms import rotation_from_6d
from robot_runtime.server.gateways.entries import Entry
from robot_runtime.server.gateways.units import HINT, WIDEST_M, Affine, Units

MOST_TURNED_RAD = 4 * np.pi
"""No joint of an arm turns further."""
_SLACK = 0.05
"""By which share of its stroke a gripper may be measured beyond its ends."""
_OF_KIND: Mapping[type[PartSchema], tuple[str, ...]] = {
    ArmSchema: ("q", "dq", "hand_pose"),
    GripperSchema: ("width",),
    BaseSchema: ("pose", "twist"),
}


class PartEntries(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Entries of a part; those of other kinds of parts are left out."""

    q: Entry | None = None
    """Joint positions."""
    dq: Entry | None = None
    """Joint velocities, in the unit of the joints; zero if they are not sent."""
    hand_pose: Entry | None = None
    """End-effector pose in the base: x, y, z [m] and the quaternion w, x, y, z, or six rotation numbers."""
    width: Entry | None = None
    """A gripper's number."""
    pose: Entry | None = None
    """Pose of a mobile base in the world: x, y, yaw [m, m, rad]."""
    twist: Entry | None = None
    """Twist of a mobile base: vx, vy, wz [m/s, m/s, rad/s]."""

    def __post_init__(self) -> None:
        kinds = [names for names in _OF_KIND.values() if any(getattr(self, name) for name in names)]
        if len(kinds) > 1:
            raise ValueError(
                "a part has entries of one kind: q, dq and hand_pose; or width; or pose and twist"
            )

    def over(self, defaults: "PartEntries") -> "PartEntries":
        """Fill what is undeclared here from the defaults."""
        missing = {
            name: getattr(defaults, name) for name in self.__struct_fields__ if not getattr(self, name)
        }
        return structs.replace(self, **missing)

    def entries(self) -> Iterator[tuple[str, Entry]]:
        """The declared entries, by name."""
        for name in self.__struct_fields__:
            if (entry := getattr(self, name)) is not None:
                yield name, entry

    def misfits(self, part: PartSchema) -> Iterator[tuple[str, int, tuple[int, ...]]]:
        """Entries of other sizes than a part of a policy needs: name, its size, the sizes it needs."""
        joints = part.num_joints if isinstance(part, ArmSchema) else 0
        needed = {"q": (joints,), "dq": (joints,), "hand_pose": (7, 9), "width": (1,)}
        for name, entry in self.entries():
            if name not in _OF_KIND[type(part)]:
                yield name, entry.size or 1, (0,)
            elif entry.size is not None and entry.size not in needed.get(name, (3,)):
                yield name, entry.size, needed.get(name, (3,))

    # ---- theirs to ours ------------------------------------------------------------------------

    def state(self, name: str, sent: Mapping[str, Any], units: Units) -> PartState | None:
        """Convert what was sent of a part; ValueError names the entry that is missing or malformed."""
        if self.width is not None:
            return GripperState(width=_width(self.width, sent, units))
        if self.pose is not None or self.twist is not None:
            pose, twist = (
                _three(entry, sent) if entry is not None and entry.is_in(sent) else None
                for entry in (self.pose, self.twist)
            )
            return BaseState(x_WB=pose, V_WB_B=twist)
        if self.q is None:
            return None
        q = _joints(self.q, sent, units, name)
        if np.abs(q).max(initial=0.0) > MOST_TURNED_RAD:
            raise ValueError(
                f"{self.q.where} is more than two turns in rad: if it is in degrees or per cent, declare "
                '"joint_unit" in the file of --names'
            )
        has_dq = self.dq is not None and self.dq.is_in(sent)
        dq = _joints(self.dq, sent, units, name, is_speed=True) if self.dq and has_dq else np.zeros(len(q))
        hand = self.hand_pose
        X_BE = _pose(hand.numbers(sent), units) if hand is not None and hand.is_in(sent) else None
        return ArmState(q=q, dq=dq, X_BE=X_BE)

    # ---- ours to theirs ------------------------------------------------------------------------

    def numbers(
        self, name: str, part: PartState, units: Units
    ) -> Iterator[tuple[Entry, np.ndarray, Affine | None]]:
        """A part's numbers in our units with the entries they belong to, and the conversion from theirs."""
        match part:
            case ArmState(q=q, dq=dq, X_BE=X_BE):
                unit = units.joints(len(q), name)
                if self.q:
                    yield self.q, q, unit
                if self.dq:
                    yield self.dq, dq, Affine(unit.scale, np.zeros_like(unit.offset))
                if self.hand_pose and X_BE is not None:
                    yield self.hand_pose, _pose_numbers(X_BE, units), None
            case GripperState(width=width):
                if self.width:
                    yield self.width, np.array([width]), Affine.of(gripper_of(self.width, units, "state"))
            case BaseState(x_WB=x_WB, V_WB_B=V_WB_B):
                if self.pose and x_WB is not None:
                    yield self.pose, x_WB, None
                if self.twist and V_WB_B is not None:
                    yield self.twist, V_WB_B, None


def gripper_of(entry: Entry | None, units: Units, which: Any) -> Linear:
    """From a gripper's number to its width; ValueError: its meaning is undeclared."""
    linear = (None if entry is None else entry.linear()) or units.gripper(which)
    if linear is None:
        raise ValueError(f"nothing says what an open gripper is: {HINT}")
    return linear


def declared_order(schema: Schema, key: str = "state") -> dict[str, PartEntries]:
    """Entries of a robot that sends joints and grippers in one row without names, in the order of the
    parts."""
    out: dict[str, PartEntries] = {}
    start = 0
    for name, part in schema.parts.items():
        n = part.num_joints if isinstance(part, ArmSchema) else 1
        entry = Entry(key=key, start=start, stop=start + n)
        match part:
            case ArmSchema():
                out[name] = PartEntries(q=entry)
            case GripperSchema():
                out[name] = PartEntries(width=entry)
            case BaseSchema():
                out[name] = PartEntries(pose=Entry(key=f"{name}_pose"), twist=Entry(key=f"{name}_twist"))
                continue
        start += n
    return out


def _joints(
    entry: Entry, sent: Mapping[str, Any], units: Units, part: str, *, is_speed: bool = False
) -> np.ndarray:
    numbers, linear = entry.numbers(sent), entry.linear()
    if linear is not None:
        return numbers * linear.scale + linear.offset
    unit = units.joints(len(numbers), part)
    return numbers * unit.scale if is_speed else unit.ours(numbers)


def _width(entry: Entry, sent: Mapping[str, Any], units: Units) -> float:
    numbers = entry.numbers(sent)
    if numbers.shape != (1,):
        raise ValueError(f"expected one number {entry.where}, got {numbers.size}")
    linear = entry.linear() or units.gripper("state")
    if linear is None:
        known = convention_of(sent)
        like = "" if known is None else f"; such keys are {known}'s"
        raise ValueError(f"{entry.where} is a gripper's, and nothing says what is open: {HINT}{like}")
    width, widest = linear.ours(float(numbers[0])), units.stroke_m or WIDEST_M
    if not -_SLACK * widest <= width <= (1.0 + _SLACK) * widest:
        raise ValueError(
            f"{entry.where} is no gripper's width between 0 and {widest:g} m as it is declared "
            f"({units.convention or 'scale and offset'}): {HINT}"
        )
    return max(0.0, width)


def _three(entry: Entry, sent: Mapping[str, Any]) -> np.ndarray:
    numbers, linear = entry.numbers(sent), entry.linear()
    if numbers.shape != (3,):
        raise ValueError(f"expected three numbers {entry.where} of a mobile base, got {numbers.size}")
    return numbers if linear is None else numbers * linear.scale + linear.offset


def _pose(numbers: np.ndarray, units: Units) -> pin.SE3:
    if numbers.shape == (6,) and units.rotation == "vector":
        return pin.SE3(pin.exp3(numbers[3:]), numbers[:3])
    if numbers.shape == (9,):
        return pin.SE3(rotation_from_6d(units.layout().to_columns(numbers[3:])), numbers[:3])
    if numbers.shape != (7,) or not 0.5 < np.linalg.norm(numbers[3:]) < 2.0:
        raise ValueError(
            "a pose is x, y, z and a quaternion w, x, y, z, or six numbers of the rotation, or a rotation "
            f'vector with "rotation": "vector"; got {numbers.size} numbers that are not'
        )
    w, x, y, z = numbers[3:] / np.linalg.norm(numbers[3:])
    return pin.SE3(pin.Quaternion(w, x, y, z), numbers[:3])


def _pose_numbers(pose: pin.SE3, units: Units) -> np.ndarray:
    if units.rotation == "vector":
        return np.concatenate([pose.translation, rotation_vectors(pose.rotation[None])[0]])
    q = pin.Quaternion(pose.rotation)
    return np.array([*pose.translation, q.w, q.x, q.y, q.z])
