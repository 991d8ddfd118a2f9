"""Which entry of a foreign observation is which part of ours, and in which units: `Names`, there and back.

Each project names what it sends in its own way, and means other things by it. A small JSON file says what;
what it leaves out is as the gateway's protocol has it:

    {
      "convention":    "droid",       which numbers are a closed and an open gripper (core/values/conventions)
      "stroke_m":      0.085,         how far its fingers are apart when it is open [m]
      "joint_unit":    "deg",         or rad, or percent of "joint_range" [rad]; without it, the convention's
      "rotation":      "rows",        of a hand's six numbers: columns, rows or interleaved
      "fit":           "pad",         pictures of another size: pad, crop or stretch
      "q":             {"key": "observation/joint_position"},
      "gripper_width": {"key": "observation/gripper_position"},
      "cameras":       {"wrist": "observation/wrist_image_left"},
      "task":          "prompt"
    }

Robots that name every number (LeRobot's) have {"names": ["shoulder_pan.pos", ...]} in place of a key. A key
with slashes also finds an entry of nested dicts. What no convention says can be said by "scale" and "offset"
of an entry, and "action_scale" and "action_offset" of all columns: ours is theirs * scale + offset. Actions
are positions as they are to be (`Served.sent_spec`).
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import msgspec
import numpy as np
import pinocchio as pin

from robot_runtime.core.values.action import (
    ActionSpec,
    EndEffectorPose,
    GripperWidth,
    JointPosition,
    Reference,
    WorldEndEffectorPose,
)
from robot_runtime.core.values.conventions import Linear, convention_of
from robot_runtime.core.values.schema import Schema
from robot_runtime.core.values.state import Image, Observation, RobotState
from robot_runtime.core.values.transforms import rotation_from_6d
from robot_runtime.errors import InvalidValueError
from robot_runtime.server.gateways.entries import Entry
from robot_runtime.server.gateways.units import HINT, WIDEST_M, Affine, Units
from robot_runtime.server.gateways.values import (
    fitted,
    listed,
    look_up,
    picture_at,
    text_at,
)

MOST_TURNED_RAD = 4 * np.pi
"""No joint of an arm turns further."""
_SLACK = 0.05
"""By which share of its way a gripper may be measured beyond its ends."""


class KeyMap(Units, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where the parts of an observation are, what their numbers mean, and what is to be done to actions."""

    q: Entry | None = None
    """Joint positions."""
    dq: Entry | None = None
    """Joint velocities, in the unit of the joints; zero if they are not sent."""
    gripper_width: Entry | None = None
    hand_pose: Entry | None = None
    """Of the hand in the base: x, y, z [m] and the quaternion w, x, y, z, or six numbers of its rotation."""
    environment_state: Entry | None = None
    cameras: dict[str, str] | None = None
    """Camera of the policy -> key of the picture, (h, w, 3) uint8 RGB."""
    task: str | None = None
    actions: str = "actions"
    action_scale: tuple[float, ...] | None = None
    action_offset: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        for scale in self.action_scale or ():
            Linear(scale=scale)
        for offset in self.action_offset or ():
            Linear(offset=offset)

    @classmethod
    def of(cls, schema: Schema) -> "KeyMap":
        """What openpi's DROID robots call things, for a robot with everything that the schema asks for.

        What its gripper's number means is not said: other robots use the same names.
        """
        return cls(
            q=Entry(key="observation/joint_position"),
            dq=Entry(key="observation/joint_velocity"),
            gripper_width=Entry(key="observation/gripper_position") if schema.has_gripper else None,
            hand_pose=Entry(key="observation/hand_pose"),
            environment_state=Entry(key="observation/environment_state")
            if schema.environment_state_dim
            else None,
            cameras={name: f"observation/{name}" for name in schema.cameras},
            task="prompt",
        )

    @classmethod
    def load(cls, path: Path) -> "KeyMap":
        """From a JSON file; InvalidValueError says what is wrong with it."""
        try:
            return msgspec.json.decode(path.read_bytes(), type=cls)
        except (OSError, msgspec.MsgspecError, InvalidValueError, ValueError) as error:
            fields = _fields_instead(str(error))
            raise InvalidValueError(f"{path} does not say what is where: {error}{fields}") from error

    def over(self, defaults: "KeyMap") -> "KeyMap":
        """With what is not said here as it is there."""
        unsaid = [name for name in self.__struct_fields__ if getattr(self, name) is None]
        return msgspec.structs.replace(self, **{name: getattr(defaults, name) for name in unsaid})

    def refuse_undeclared(self, schema: Schema, spec: ActionSpec, *, policy: str) -> None:
        """InvalidValueError: a number of this policy's can be read in two ways, and nothing says in which."""
        try:
            if schema.has_gripper:
                self._gripper_of(self.gripper_width, "state")
            self._columns(spec)
            if _rotations(spec):
                self.layout()
        except ValueError as error:
            raise InvalidValueError(f"of policy {policy!r} {error}") from error

    def refuse_misfit(self, schema: Schema, spec: ActionSpec) -> None:
        """InvalidValueError: what is said here cannot be for a policy with those; before anybody asks."""
        pairs = [
            (name, entry.size, sizes)
            for name, entry, sizes in (
                ("q", self.q, (schema.num_joints,)),
                ("dq", self.dq, (schema.num_joints,)),
                ("gripper_width", self.gripper_width, (1,)),
                ("hand_pose", self.hand_pose, (7, 9)),
                ("environment_state", self.environment_state, (schema.environment_state_dim,)),
            )
            if entry is not None and entry.size is not None
        ]
        for name, said, size in (
            ("joint_range", self.joint_range, schema.num_joints),
            ("action_scale", self.action_scale, spec.dim),
            ("action_offset", self.action_offset, spec.dim),
        ):
            pairs += [(name, len(said), (size,))] if said is not None else []
        for name, has, needed in pairs:
            if has not in needed:
                raise InvalidValueError(
                    f'"{name}" has {has} numbers, the policy needs {" or ".join(map(str, needed))}'
                )
        if self.cameras is not None and (missing := schema.cameras.keys() - self.cameras.keys()):
            raise InvalidValueError(
                f'"cameras" has {listed(self.cameras)}; the policy also looks at {listed(sorted(missing))}'
            )

    # ---- theirs to ours ------------------------------------------------------------------------

    def observation(
        self, sent: Mapping[str, Any], *, now_ns: int, sizes: Mapping[str, tuple[int, int]] | None = None
    ) -> Observation:
        """What was sent, as ours; ValueError names the entry that is missing or of the wrong form.

        Velocities and the pose of the hand may be missing: the policy says if it needs them.
        sizes: of the policy's cameras, (height, width); pictures are made to fit if `fit` says how.
        """
        if self.q is None:
            raise ValueError('nothing says where the joints are: say "q" in the file of --names')
        q = self._joints(self.q, sent)
        if np.abs(q).max(initial=0.0) > MOST_TURNED_RAD:
            raise ValueError(
                f"{self.q.where} is more than two turns in rad: if it is in degrees or per cent, say "
                '"joint_unit" in the file of --names'
            )
        has_dq = self.dq is not None and self.dq.is_in(sent)
        dq = self._joints(self.dq, sent, is_speed=True) if self.dq and has_dq else np.zeros(len(q))
        hand, scene = self.hand_pose, self.environment_state
        state = RobotState(
            t_ns=now_ns,
            q=q,
            dq=dq,
            X_BE=self._pose(hand.numbers(sent)) if hand is not None and hand.is_in(sent) else None,
            gripper_width=None if self.gripper_width is None else self._width(self.gripper_width, sent),
        )
        return Observation(
            state=state,
            images={
                name: Image(t_ns=now_ns, pixels=self._picture(sent, key, (sizes or {}).get(name)))
                for name, key in (self.cameras or {}).items()
                if sizes is None or name in sizes
            },
            environment_state=np.zeros(0) if scene is None else scene.numbers(sent),
            task=text_at(sent, self.task or "task"),
        )

    def _joints(self, entry: Entry, sent: Mapping[str, Any], *, is_speed: bool = False) -> np.ndarray:
        numbers, said = entry.numbers(sent), entry.linear()
        if said is not None:
            return numbers * said.scale + said.offset
        unit = self.joints(len(numbers))
        return numbers * unit.scale if is_speed else unit.ours(numbers)

    def _width(self, entry: Entry, sent: Mapping[str, Any]) -> float:
        numbers = entry.numbers(sent)
        if numbers.shape != (1,):
            raise ValueError(f"{entry.where} is one number, got {numbers.size}")
        linear = entry.linear() or self.gripper("state")
        if linear is None:
            known = convention_of(sent)
            like = "" if known is None else f"; such keys are {known}'s"
            raise ValueError(f"{entry.where} is a gripper's, and nothing says what is open: {HINT}{like}")
        width, widest = linear.ours(float(numbers[0])), self.stroke_m or WIDEST_M
        if not -_SLACK * widest <= width <= (1.0 + _SLACK) * widest:
            raise ValueError(
                f"{entry.where} is no gripper's width between 0 and {widest:g} m as it is declared "
                f"({self.convention or 'scale and offset'}): {HINT}"
            )
        return max(0.0, width)

    def _pose(self, numbers: np.ndarray) -> pin.SE3:
        if numbers.shape == (9,):
            return pin.SE3(rotation_from_6d(self.layout().to_columns(numbers[3:])), numbers[:3])
        if numbers.shape != (7,) or not 0.5 < np.linalg.norm(numbers[3:]) < 2.0:
            raise ValueError(
                "a pose is x, y, z and a quaternion w, x, y, z, or six numbers of the rotation, got "
                f"{numbers.size} numbers that are not"
            )
        w, x, y, z = numbers[3:] / np.linalg.norm(numbers[3:])
        return pin.SE3(pin.Quaternion(w, x, y, z), numbers[:3])

    def _picture(self, sent: Mapping[str, Any], key: str, size: tuple[int, int] | None) -> np.ndarray:
        pixels = picture_at(sent, key)
        return pixels if size is None or self.fit is None else fitted(pixels, size, self.fit)

    def rows(self, answer: Mapping[str, Any], spec: ActionSpec) -> np.ndarray:
        """Their actions as our rows (n, D); ValueError if there are none."""
        actions = look_up(answer, self.actions)
        if not isinstance(actions, np.ndarray | list):
            raise ValueError(f"{self.actions!r} is an array (rows, columns); the answer has {listed(answer)}")
        rows = np.asarray(actions, float)
        if rows.ndim != 2 or rows.shape[1] != spec.dim:
            raise ValueError(f"{self.actions!r} is an array (rows, {spec.dim}), got shape {rows.shape}")
        out = self._columns(spec).ours(rows)
        for columns in _rotations(spec):
            out[:, columns] = self.layout().to_columns(out[:, columns])
        return out

    # ---- ours to theirs ------------------------------------------------------------------------

    def sent_actions(self, rows: np.ndarray, spec: ActionSpec) -> np.ndarray:
        """Our rows (n, D) as they expect them; ValueError if nothing says what that is."""
        out = self._columns(spec).theirs(rows)
        for columns in _rotations(spec):
            out[:, columns] = self.layout().from_columns(out[:, columns])
        return out

    def sent(self, observation: Observation) -> dict[str, Any]:
        """An observation as they expect it, keys as they are here; parts of one entry side by side."""
        state = observation.state
        unit = self.joints(len(state.q))
        width = None if state.gripper_width is None else np.array([state.gripper_width])
        gripper = self._gripper_of(self.gripper_width, "state") if self.gripper_width else None
        parts: list[tuple[Entry | None, np.ndarray | None, Affine | None]] = [
            (self.q, state.q, unit),
            (self.dq, state.dq, Affine(unit.scale, np.zeros_like(unit.offset))),
            (self.gripper_width, width, None if gripper is None else Affine.of(gripper)),
            (self.hand_pose, None if state.X_BE is None else _pose_numbers(state.X_BE), None),
            (self.environment_state, observation.environment_state, None),
        ]
        out: dict[str, Any] = {self.task or "task": observation.task}
        for entry, numbers, declared in parts:
            if entry is None or numbers is None:
                continue
            said = entry.linear()
            affine = Affine.of(said) if said is not None else declared
            theirs = (numbers if affine is None else affine.theirs(numbers)).astype(np.float32)
            if entry.names:
                out |= dict(zip(entry.names, map(float, theirs), strict=True))
                continue
            columns = slice(entry.start, entry.start + len(theirs))
            row = np.full(max(columns.stop, len(out.get(entry.key, ()))), np.nan, np.float32)
            row[: len(out.get(entry.key, ()))] = out.get(entry.key, ())
            if not np.isnan(row[columns]).all() or entry.size not in (None, len(theirs)):
                raise ValueError(
                    f"two things are said to be in one place of {entry.where}, or one has no room"
                )
            row[columns] = theirs
            out[entry.key] = row
        if gaps := [key for key, row in out.items() if isinstance(row, np.ndarray) and np.isnan(row).any()]:
            raise ValueError(f"nothing is said to be in some places of {listed(gaps)}")
        pictures = {key: name for name, key in (self.cameras or {}).items() if name in observation.images}
        return out | {key: observation.images[name].pixels for key, name in pictures.items()}

    def _gripper_of(self, entry: Entry | None, which: Literal["state", "action"]) -> Linear:
        linear = (None if entry is None else entry.linear()) or self.gripper(which)
        if linear is None:
            raise ValueError(f"nothing says what an open gripper is: {HINT}")
        return linear

    def _columns(self, spec: ActionSpec) -> "Affine":
        """Of the columns of an action: said for all of them, or as the parts of the state are."""
        if self.action_scale is not None or self.action_offset is not None:
            return Affine(
                _said(self.action_scale, spec.dim, 1.0, "action_scale"),
                _said(self.action_offset, spec.dim, 0.0, "action_offset"),
            )
        scale, offset = np.ones(spec.dim), np.zeros(spec.dim)
        for field, columns in spec.columns():
            match field:
                case JointPosition(num_joints=n, reference=reference):
                    said = None if self.q is None else self.q.linear()
                    unit = self.joints(n) if said is None else Affine.of(said)
                    scale[columns] = unit.scale
                    if reference is Reference.ABSOLUTE:
                        offset[columns] = unit.offset
                case GripperWidth():
                    linear = self._gripper_of(self.gripper_width, "action")
                    scale[columns], offset[columns] = linear.scale, linear.offset
        return Affine(scale, offset)


def _fields_instead(error: str) -> str:
    """Those there are, for an error of msgspec's that one is unknown; nothing for another error."""
    if "unknown field" not in error:
        return ""
    known = Entry.__struct_fields__ if "at `$" in error else KeyMap.__struct_fields__
    return f"; there are {', '.join(known)}"


def _said(values: tuple[float, ...] | None, dim: int, otherwise: float, name: str) -> np.ndarray:
    if values is None:
        return np.full(dim, otherwise)
    if len(values) != dim:
        raise ValueError(f"{name} has {len(values)} numbers, actions have {dim} columns")
    return np.array(values)


def _rotations(spec: ActionSpec) -> list[slice]:
    """Where an action has six numbers of a rotation."""
    hands = EndEffectorPose | WorldEndEffectorPose
    return [slice(c.start + 3, c.stop) for field, c in spec.columns() if isinstance(field, hands)]


def _pose_numbers(pose: pin.SE3) -> np.ndarray:
    q = pin.Quaternion(pose.rotation)
    return np.array([*pose.translation, q.w, q.x, q.y, q.z])
