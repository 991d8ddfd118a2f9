"""Maps entries of a foreign observation to parts of ours, with their units: `KeyMap`, there and back.

Each project names its entries in its own way, and with its own units. A small JSON file declares them;
what it leaves out is as in the gateway's protocol:

    {
      "convention":    "droid",       which numbers are a closed and an open gripper (core/values/conventions)
      "stroke_m":      0.085,         distance between its fingers when it is open [m]
      "joint_unit":    "deg",         or rad, or percent of "joint_range" [rad]; without it, the convention's
      "rotation":      "rows",        of an end effector's six numbers: columns, rows or interleaved
      "fit":           "pad",         images of another size: pad, crop or stretch (as LeRobot's server)
      "channels":      "first",       images are (3, h, w), as ALOHA's on openpi; else (h, w, 3)
      "q":             {"key": "observation/joint_position"},
      "gripper_width": {"key": "observation/gripper_position"},
      "cameras":       {"wrist": "observation/wrist_image_left"},
      "task":          "prompt"
    }

A robot with other parts than one arm and one gripper declares where each is:

    {"parts": {"left_arm":     {"q":     {"key": "state", "start": 0, "stop": 6}},
               "left_gripper": {"width": {"key": "state", "start": 6, "stop": 7}}},
     "measured": {"wrist_force": {"key": "force"}}}

One file serves several kinds of clients: the section "openpi", "lerobot" or "groot" is for those alone, and
replaces the same keys above:

    {"convention": "droid", "stroke_m": 0.085,
     "lerobot": {"convention": "so101", "q": {"names": ["shoulder_pan.pos", ...]}}}

Robots that name every number (LeRobot's) have {"names": ["shoulder_pan.pos", ...]} in place of a key. A key
with slashes also finds an entry of nested dicts. Units outside the conventions are declared by "scale" and
"offset" of an entry, and "action_scale" and "action_offset" of all columns: ours is theirs * scale + offset.
Actions are absolute positions (`ActionSpec.absolute`).
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, get_args

import msgspec
import numpy as np
from msgspec import structs

from robot_runtime.core.values.action import (
    ActionSpec,
    EndEffectorPose,
    GripperFraction,
    GripperWidth,
    JointPosition,
    JointVelocity,
    Reference,
    WorldEndEffectorPose,
)
from robot_runtime.core.values.conventions import Linear
from robot_runtime.core.values.fields import Rotation
from robot_runtime.core.values.schema import Schema
from robot_runtime.core.values.state import ARM, BASE, GRIPPER, Image, Observation, RobotState
from robot_runtime.errors import InvalidValueError
from robot_runtime.robot.counted_log import CountedLog
from robot_runtime.server.gateways.entries import Entry
from robot_runtime.server.gateways.part_entries import PartEntries, declared_order, gripper_of
from robot_runtime.server.gateways.units import Affine, Units
from robot_runtime.server.gateways.values import (
    fitted,
    listed,
    look_up,
    picture_at,
    text_at,
)

Client = Literal["openpi", "lerobot", "groot"]
"""Names in other projects."""


class KeyMap(Units, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where the parts of an observation are, their units, and how actions are converted."""

    q: Entry | None = None
    """Joint positions."""
    dq: Entry | None = None
    """Joint velocities, in the unit of the joints; zero if they are not sent."""
    gripper_width: Entry | None = None
    hand_pose: Entry | None = None
    """End-effector pose in the base: x, y, z [m] and the quaternion w, x, y, z, or six rotation numbers."""
    parts: dict[str, PartEntries] | None = None
    """The same for a robot's named parts; the fields above are for the parts "arm" and "gripper"."""
    measured: dict[str, Entry] | None = None
    """Further quantities by name, SI units."""
    environment_state: Entry | None = None
    cameras: dict[str, str] | None = None
    """Camera of the policy -> key of the image, (h, w, 3) uint8 RGB."""
    task: str | None = None
    actions: str = "actions"
    action_scale: tuple[float, ...] | None = None
    action_offset: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        named = dict(self.parts or {})
        for part, shorthand in _SHORTHAND.items():
            for name, entry in named.pop(part, PartEntries()).entries():
                if name not in shorthand or getattr(self, shorthand[name]) is not None:
                    raise ValueError(f'"{name}" of {part} is declared twice, or of another kind of part')
                structs.force_setattr(self, shorthand[name], entry)
        structs.force_setattr(self, "parts", named or None)
        for scale in self.action_scale or ():
            Linear(scale=scale)
        for offset in self.action_offset or ():
            Linear(offset=offset)

    @classmethod
    def of(cls, schema: Schema) -> "KeyMap":
        """The names of openpi's DROID robots, for a robot with all parts of the schema; those of ALOHA for a
        robot with named parts: "state" has joints and grippers in the order of the parts.

        The meaning of a gripper's number is undeclared: other robots use the same names.
        """
        scene = Entry(key="observation/environment_state") if schema.environment_state_dim else None
        if has_named_parts(schema):
            return cls(
                parts=declared_order(schema),
                measured={name: Entry(key=name) for name in schema.measured},
                environment_state=scene,
                cameras={name: f"images/{name}" for name in schema.cameras},
                task="prompt",
            )
        return cls(
            q=Entry(key="observation/joint_position"),
            dq=Entry(key="observation/joint_velocity"),
            gripper_width=Entry(key="observation/gripper_position") if schema.has_gripper else None,
            hand_pose=Entry(key="observation/hand_pose"),
            measured={name: Entry(key=f"observation/{name}") for name in schema.measured},
            environment_state=scene,
            cameras={name: f"observation/{name}" for name in schema.cameras},
            task="prompt",
        )

    @classmethod
    def load(cls, path: Path, client: Client | None = None) -> "KeyMap":
        """Load a JSON file; InvalidValueError reports what is wrong with it.

        client: whose section overrides the rest of the file; None: no section counts.
        """
        try:
            data = msgspec.json.decode(path.read_bytes())
            if isinstance(data, dict):
                sections = {name: data.pop(name) for name in get_args(Client) if name in data}
                data |= msgspec.convert(sections.get(client, {}), dict)
            return msgspec.convert(data, cls)
        except (OSError, msgspec.MsgspecError, InvalidValueError, ValueError) as error:
            fields = _fields_instead(str(error))
            raise InvalidValueError(f"{path} does not say what is where: {error}{fields}") from error

    def over(self, defaults: "KeyMap") -> "KeyMap":
        """Fill what is undeclared here from the defaults."""
        undeclared = [name for name in self.__struct_fields__ if getattr(self, name) is None]
        out = structs.replace(self, **{name: getattr(defaults, name) for name in undeclared})
        mine, theirs = self.parts or {}, defaults.parts or {}
        parts = {
            name: mine.get(name, PartEntries()).over(theirs.get(name, PartEntries()))
            for name in {**theirs, **mine}
        }
        measured = {**(defaults.measured or {}), **(self.measured or {})}
        return structs.replace(out, parts=parts, measured=measured)

    @property
    def entries(self) -> dict[str, PartEntries]:
        """The entries of all parts."""
        out = {}
        for part, shorthand in _SHORTHAND.items():
            own = PartEntries(**{name: getattr(self, key) for name, key in shorthand.items()})
            if own != PartEntries():
                out[part] = own
        return out | (self.parts or {})

    def refuse_undeclared(self, schema: Schema, spec: ActionSpec, *, policy: str) -> None:
        """InvalidValueError: a number of this policy can be read in two ways, and its meaning is
        undeclared."""
        try:
            for name in schema.grippers:
                gripper_of(self.entries.get(name, PartEntries()).width, self, "state")
            self._columns(spec)
            if _rotations(spec):
                self.layout()
        except ValueError as error:
            raise InvalidValueError(f"of policy {policy!r} {error}") from error

    def refuse_misfit(self, schema: Schema, spec: ActionSpec) -> None:
        """InvalidValueError: the map cannot fit a policy with those; checked before any client asks."""
        pairs: list[tuple[str, int, tuple[int, ...]]] = []
        for part, own in self.entries.items():
            if part not in schema.parts:
                has = ", ".join(schema.parts) or "none"
                raise InvalidValueError(f"it declares the part {part!r}; the parts of the policy are {has}")
            shorthand = _SHORTHAND.get(part, {})
            for name, size, needed in own.misfits(schema.parts[part]):
                pairs.append((shorthand.get(name, f"{part}.{name}"), size, needed))
        for name, entry in (self.measured or {}).items():
            if entry.size is not None and name in schema.measured:
                pairs.append((name, entry.size, (schema.measured[name],)))
        scene = self.environment_state
        if scene is not None and scene.size is not None:
            pairs.append(("environment_state", scene.size, (schema.environment_state_dim,)))
        for part, arm in schema.arms.items():
            ends = (self.joint_ranges or {}).get(part, self.joint_range)
            pairs += [("joint_range", len(ends), (arm.num_joints,))] if ends is not None else []
        for name, scales in (("action_scale", self.action_scale), ("action_offset", self.action_offset)):
            pairs += [(name, len(scales), (spec.dim,))] if scales is not None else []
        for what, num, needed in pairs:
            if num not in needed:
                raise InvalidValueError(
                    f'"{what}" has {num} numbers, the policy needs {" or ".join(map(str, needed))}'
                )
        if self.cameras is not None and (missing := schema.cameras.keys() - self.cameras.keys()):
            raise InvalidValueError(
                f'"cameras" has {listed(self.cameras)}; the policy also looks at {listed(sorted(missing))}'
            )

    # ---- theirs to ours ------------------------------------------------------------------------

    def observation(
        self,
        sent: Mapping[str, Any],
        *,
        now_ns: int,
        sizes: Mapping[str, tuple[int, int]] | None = None,
        notices: CountedLog | None = None,
    ) -> Observation:
        """Convert what was sent to ours; ValueError names the entry that is missing or malformed.

        Velocities and the end-effector pose may be missing: the policy reports if it needs them.
        sizes: of the policy's cameras, (height, width); images are resized if `fit` declares how.
        notices: receives one line for each camera whose images are resized, with both sizes.
        """
        if not self.entries:
            raise ValueError('the place of the joints is undeclared: declare "q" in the file of --names')
        parts = {name: own.state(name, sent, self) for name, own in self.entries.items()}
        measured = {name: _scaled(entry, sent) for name, entry in (self.measured or {}).items()}
        scene = self.environment_state
        state = RobotState(
            t_ns=now_ns,
            parts={name: part for name, part in parts.items() if part is not None},
            measured=measured,
        )
        return Observation(
            state=state,
            images={
                name: Image(t_ns=now_ns, pixels=self._picture(sent, key, (sizes or {}).get(name), notices))
                for name, key in (self.cameras or {}).items()
                if sizes is None or name in sizes
            },
            environment_state=np.zeros(0) if scene is None else scene.numbers(sent),
            task=text_at(sent, self.task or "task"),
        )

    def _picture(
        self, sent: Mapping[str, Any], key: str, size: tuple[int, int] | None, notices: CountedLog | None
    ) -> np.ndarray:
        pixels = picture_at(sent, key, are_channels_first=self.channels == "first")
        if size is None or self.fit is None or pixels.shape[:2] == size:
            return pixels
        if notices is not None:
            came, needed = (f"{h} x {w}" for h, w in (pixels.shape[:2], size))
            text = f"images {listed([key])!r} of {came} are resized to {needed}: {self.fit}"
            notices.counted(text, 1, text, is_routine=True)
        return fitted(pixels, size, self.fit)

    def rows(self, answer: Mapping[str, Any], spec: ActionSpec) -> np.ndarray:
        """Their actions as our rows (n, D); ValueError if there are none."""
        actions = look_up(answer, self.actions)
        if not isinstance(actions, np.ndarray | list):
            raise ValueError(f"expected an array (rows, columns) {self.actions!r}, got {listed(answer)}")
        rows = np.asarray(actions, float)
        if rows.ndim != 2 or rows.shape[1] != spec.dim:
            raise ValueError(f"expected {self.actions!r} of shape (rows, {spec.dim}), got {rows.shape}")
        out = self._columns(spec).ours(rows)
        for columns in _rotations(spec):
            out[:, columns] = self.layout().to_columns(out[:, columns])
        return out

    # ---- ours to theirs ------------------------------------------------------------------------

    def sent_actions(self, rows: np.ndarray, spec: ActionSpec) -> np.ndarray:
        """Convert our rows (n, D) to theirs; ValueError if their meaning is undeclared."""
        out = self._columns(spec).theirs(rows)
        for columns in _rotations(spec):
            out[:, columns] = self.layout().from_columns(out[:, columns])
        return out

    def sent(self, observation: Observation) -> dict[str, Any]:
        """Convert an observation to theirs, with the keys of this map; parts of one entry side by side."""
        state = observation.state
        placed: list[tuple[Entry, np.ndarray, Affine | None]] = []
        for name, own in self.entries.items():
            if name in state.parts:
                placed += own.numbers(name, state.parts[name], self)
        for name, entry in (self.measured or {}).items():
            if name in state.measured:
                placed.append((entry, state.measured[name], None))
        if self.environment_state is not None:
            placed.append((self.environment_state, observation.environment_state, None))
        out: dict[str, Any] = {self.task or "task": observation.task}
        for entry, numbers, declared in placed:
            linear = entry.linear()
            affine = Affine.of(linear) if linear is not None else declared
            theirs = (numbers if affine is None else affine.theirs(numbers)).astype(np.float32)
            if entry.names:
                out |= dict(zip(entry.names, map(float, theirs), strict=True))
                continue
            columns = slice(entry.start, entry.start + len(theirs))
            row = np.full(max(columns.stop, len(out.get(entry.key, ()))), np.nan, np.float32)
            row[: len(out.get(entry.key, ()))] = out.get(entry.key, ())
            if not np.isnan(row[columns]).all() or entry.size not in (None, len(theirs)):
                raise ValueError(
                    f"two parts are declared at one position of {entry.where}, or one does not fit"
                )
            row[columns] = theirs
            out[entry.key] = row
        if gaps := [key for key, row in out.items() if isinstance(row, np.ndarray) and np.isnan(row).any()]:
            raise ValueError(f"positions of {listed(gaps)} are not declared")
        pictures = {key: name for name, key in (self.cameras or {}).items() if name in observation.images}
        for key, name in pictures.items():
            pixels = observation.images[name].pixels
            out[key] = pixels.transpose(2, 0, 1) if self.channels == "first" else pixels
        return out

    def _columns(self, spec: ActionSpec) -> "Affine":
        """Units of an action's columns: declared for all of them, or as for the parts of the state."""
        if self.action_scale is not None or self.action_offset is not None:
            return Affine(
                _filled(self.action_scale, spec.dim, 1.0, "action_scale"),
                _filled(self.action_offset, spec.dim, 0.0, "action_offset"),
            )
        scale, offset = np.ones(spec.dim), np.zeros(spec.dim)
        for field, columns in spec.columns():
            own = self.entries.get(field.part, PartEntries())
            match field:
                case JointPosition() | JointVelocity():
                    linear = None if own.q is None else own.q.linear()
                    unit = self.joints(field.dim, field.part) if linear is None else Affine.of(linear)
                    scale[columns] = unit.scale
                    if isinstance(field, JointPosition) and field.reference is Reference.ABSOLUTE:
                        offset[columns] = unit.offset
                case GripperWidth():
                    linear = gripper_of(own.width, self, "action")
                    scale[columns], offset[columns] = linear.scale, linear.offset
                case GripperFraction():
                    share = self._share(field, gripper_of(own.width, self, "action"))
                    scale[columns], offset[columns] = share.scale, share.offset
        return Affine(scale, offset)

    def _share(self, field: GripperFraction, linear: Linear) -> Linear:
        """From their number to a share of an opening of `stroke_m`; ValueError: that is undeclared."""
        if self.stroke_m is None:
            raise ValueError('the policy commands a gripper by its share of opening: declare "stroke_m"')
        turn = (1.0, 0.0) if field.one_is_open else (-1.0, 1.0)
        to_share = Linear(scale=turn[0] / self.stroke_m, offset=turn[1])
        return Linear(scale=linear.scale * to_share.scale, offset=to_share.ours(linear.offset))


def _fields_instead(error: str) -> str:
    """The valid fields, for an error of msgspec about an unknown one; nothing for another error."""
    if "unknown field" not in error:
        return ""
    known = Entry.__struct_fields__ if "at `$" in error else (*KeyMap.__struct_fields__, *get_args(Client))
    if error.endswith("at `$.parts[...]`"):
        known = PartEntries.__struct_fields__
    return f"; there are {', '.join(known)}"


def _filled(values: tuple[float, ...] | None, dim: int, otherwise: float, name: str) -> np.ndarray:
    if values is None:
        return np.full(dim, otherwise)
    if len(values) != dim:
        raise ValueError(f"{name} has {len(values)} numbers, actions have {dim} columns")
    return np.array(values)


def _rotations(spec: ActionSpec) -> list[slice]:
    """Columns of an action with six rotation numbers; a rotation vector can be read in one way only."""
    return [
        slice(columns.start + 3, columns.stop)
        for field, columns in spec.columns()
        if isinstance(field, EndEffectorPose | WorldEndEffectorPose) and field.rotation is Rotation.COLUMNS
    ]


def has_named_parts(schema: Schema) -> bool:
    """Whether a robot has other parts than one arm, one gripper and one base."""
    return not set(schema.parts) <= {ARM, GRIPPER, BASE}


def _scaled(entry: Entry, sent: Mapping[str, Any]) -> np.ndarray:
    numbers, linear = entry.numbers(sent), entry.linear()
    return numbers if linear is None else numbers * linear.scale + linear.offset


_SHORTHAND: Mapping[str, Mapping[str, str]] = {
    ARM: {"q": "q", "dq": "dq", "hand_pose": "hand_pose"},
    GRIPPER: {"width": "gripper_width"},
}
"""Entry names of a robot with one arm and one gripper, by part."""
