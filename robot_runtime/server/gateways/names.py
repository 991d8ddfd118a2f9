"""Which entry of a foreign observation is which part of ours: `Names`, there and back.

openpi's robots each name and scale what they send in their own way; a small JSON file says how:

    {
      "q":             {"key": "observation/joint_position"},
      "gripper_width": {"key": "observation/gripper_position", "scale": -0.08, "offset": 0.08},
      "cameras":       {"wrist": "observation/wrist_image_left"},
      "task":          "prompt",
      "action_scale":  [1, 1, 1, 1, 1, 1, 1, -0.08],
      "action_offset": [0, 0, 0, 0, 0, 0, 0, 0.08]
    }

Ours is theirs * scale + offset. A key with slashes also finds an entry of nested dicts.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pinocchio as pin
from msgspec import Struct

from robot_runtime.core.schema import Schema
from robot_runtime.core.state import Image, Observation, RobotState
from robot_runtime.errors import InvalidValueError


class Entry(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Numbers of one entry: all of them, or those from `start` to before `stop`."""

    key: str
    start: int = 0
    stop: int | None = None
    scale: float = 1.0
    offset: float = 0.0


class Names(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where the parts of an observation are, and what is to be done to actions."""

    q: Entry
    """Joint positions [rad]."""
    dq: Entry | None = None
    """Joint velocities [rad/s]; zero if they are not sent."""
    gripper_width: Entry | None = None
    """[m]"""
    hand_pose: Entry | None = None
    """Of the hand in the base: x, y, z [m] and the quaternion w, x, y, z."""
    environment_state: Entry | None = None
    cameras: dict[str, str] = {}
    """Camera of the policy -> key of the picture, (h, w, 3) uint8 RGB."""
    task: str = "prompt"
    actions: str = "actions"
    action_scale: tuple[float, ...] | None = None
    action_offset: tuple[float, ...] | None = None

    @classmethod
    def of(cls, schema: Schema) -> "Names":
        """What openpi's DROID robots call things, for a robot with everything that the schema asks for."""
        return cls(
            q=Entry(key="observation/joint_position"),
            dq=Entry(key="observation/joint_velocity"),
            gripper_width=Entry(key="observation/gripper_position") if schema.has_gripper else None,
            hand_pose=Entry(key="observation/hand_pose"),
            environment_state=Entry(key="observation/environment_state")
            if schema.environment_state_dim
            else None,
            cameras={name: f"observation/{name}" for name in schema.cameras},
        )

    @classmethod
    def load(cls, path: Path) -> "Names":
        """From a JSON file; InvalidValueError says what is wrong with it."""
        try:
            return msgspec.json.decode(path.read_bytes(), type=cls)
        except (OSError, msgspec.MsgspecError) as error:
            raise InvalidValueError(
                f"{path} does not say what is where in an observation: {error}"
            ) from error

    # ---- theirs to ours ------------------------------------------------------------------------

    def observation(self, sent: Mapping[str, Any], *, now_ns: int) -> Observation:
        """What was sent, as ours; ValueError names the entry that is missing or of the wrong form.

        Velocities and the pose of the hand may be missing: the policy says if it needs them.
        """
        q = _numbers(sent, self.q)
        dq = _numbers(sent, self.dq) if _has(sent, self.dq) else np.zeros(len(q))
        width = None if self.gripper_width is None else _numbers(sent, self.gripper_width)
        if width is not None and width.shape != (1,):
            raise ValueError(f"{_where(self.gripper_width)} is one number, got {width.size}")
        state = RobotState(
            t_ns=now_ns,
            q=q,
            dq=dq,
            X_BE=_pose(_numbers(sent, self.hand_pose)) if _has(sent, self.hand_pose) else None,
            gripper_width=None if width is None else float(width[0]),
        )
        task = _look_up(sent, self.task)
        scene = self.environment_state
        return Observation(
            state=state,
            images={name: _image(sent, key, now_ns) for name, key in self.cameras.items()},
            environment_state=np.zeros(0) if scene is None else _numbers(sent, scene),
            task="" if task is None else str(task),
        )

    def sent_actions(self, rows: np.ndarray) -> np.ndarray:
        """Our rows (n, D) as they expect them."""
        return (rows - self._offset(rows)) / self._scale(rows)

    # ---- ours to theirs ------------------------------------------------------------------------

    def sent(self, observation: Observation) -> dict[str, Any]:
        """An observation as they expect it, keys as they are here; parts of one entry side by side."""
        state = observation.state
        parts: list[tuple[Entry | None, np.ndarray | None]] = [
            (self.q, state.q),
            (self.dq, state.dq),
            (self.gripper_width, None if state.gripper_width is None else np.array([state.gripper_width])),
            (self.hand_pose, None if state.X_BE is None else _pose_numbers(state.X_BE)),
            (self.environment_state, observation.environment_state),
        ]
        out: dict[str, Any] = {self.task: observation.task}
        for entry, numbers in parts:
            if entry is None or numbers is None:
                continue
            theirs = ((numbers - entry.offset) / entry.scale).astype(np.float32)
            before = out.get(entry.key, np.zeros(0, np.float32))
            row = np.zeros(max(len(before), entry.start + len(theirs)), np.float32)
            row[: len(before)] = before
            row[entry.start : entry.start + len(theirs)] = theirs
            out[entry.key] = row
        for name, key in self.cameras.items():
            out[key] = observation.images[name].pixels
        return out

    def rows(self, answer: Mapping[str, Any]) -> np.ndarray:
        """Their actions as our rows (n, D); ValueError if there are none."""
        actions = _look_up(answer, self.actions)
        rows = None if actions is None else np.asarray(actions, float)
        if rows is None or rows.ndim != 2:
            shape = "nothing" if rows is None else f"shape {rows.shape}"
            raise ValueError(f"{self.actions!r} is an array (rows, columns), got {shape}")
        return rows * self._scale(rows) + self._offset(rows)

    def _scale(self, rows: np.ndarray) -> np.ndarray:
        return _column_values(self.action_scale, rows, 1.0, "action_scale")

    def _offset(self, rows: np.ndarray) -> np.ndarray:
        return _column_values(self.action_offset, rows, 0.0, "action_offset")


def _column_values(
    values: tuple[float, ...] | None, rows: np.ndarray, otherwise: float, name: str
) -> np.ndarray:
    if values is None:
        return np.full(rows.shape[1], otherwise)
    if len(values) != rows.shape[1]:
        raise ValueError(f"{name} has {len(values)} numbers, actions have {rows.shape[1]} columns")
    return np.array(values)


def _look_up(sent: Mapping[str, Any], key: str) -> Any | None:
    if key in sent:
        return sent[key]
    found: Any = sent
    for part in key.split("/"):
        if not isinstance(found, Mapping) or part not in found:
            return None
        found = found[part]
    return found


def _has(sent: Mapping[str, Any], entry: Entry | None) -> bool:
    return entry is not None and _look_up(sent, entry.key) is not None


def _where(entry: Entry | None) -> str:
    return "" if entry is None else repr(entry.key)


def _numbers(sent: Mapping[str, Any], entry: Entry | None) -> np.ndarray:
    assert entry is not None
    value = _look_up(sent, entry.key)
    if value is None:
        raise ValueError(
            f"the observation has no {entry.key!r}; it has {', '.join(map(str, sent)) or 'nothing'}"
        )
    try:
        numbers = np.atleast_1d(np.asarray(value, dtype=float))
    except (TypeError, ValueError) as error:
        raise ValueError(f"{entry.key!r} is not an array of numbers: {error}") from error
    if numbers.ndim != 1 or (entry.stop or 0) > len(numbers):
        raise ValueError(
            f"{entry.key!r} has shape {numbers.shape}, numbers to {entry.stop or 'its end'} are needed"
        )
    if not np.isfinite(numbers).all():
        raise ValueError(f"{entry.key!r} holds NaN or infinite numbers")
    return numbers[entry.start : entry.stop] * entry.scale + entry.offset


def _pose(numbers: np.ndarray) -> pin.SE3:
    if numbers.shape != (7,) or not 0.5 < np.linalg.norm(numbers[3:]) < 2.0:
        raise ValueError(f"a pose is x, y, z and a quaternion w, x, y, z, got {numbers}")
    w, x, y, z = numbers[3:] / np.linalg.norm(numbers[3:])
    return pin.SE3(pin.Quaternion(w, x, y, z), numbers[:3])


def _pose_numbers(pose: pin.SE3) -> np.ndarray:
    q = pin.Quaternion(pose.rotation)
    return np.array([*pose.translation, q.w, q.x, q.y, q.z])


def _image(sent: Mapping[str, Any], key: str, now_ns: int) -> Image:
    pixels = _look_up(sent, key)
    if pixels is None:
        raise ValueError(
            f"the observation has no picture {key!r}; it has {', '.join(map(str, sent)) or 'nothing'}"
        )
    pixels = np.asarray(pixels)
    if pixels.ndim != 3 or pixels.shape[2] != 3 or pixels.dtype != np.uint8:
        raise ValueError(f"picture {key!r} is (h, w, 3) uint8, got {pixels.shape} {pixels.dtype}")
    return Image(t_ns=now_ns, pixels=np.ascontiguousarray(pixels))
