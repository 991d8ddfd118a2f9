"""What the robot knows about itself and sees: `RobotState`, `Image`, `Observation`.

What drivers hand over is theirs: arrays and poses that they may go on writing to are copied, and numbers of
numpy's types become plain ones.
"""

import math
from collections.abc import Mapping
from functools import cached_property
from types import MappingProxyType, NoneType

import numpy as np
import pinocchio as pin
from msgspec import Struct, field
from msgspec.structs import force_setattr

from robot_runtime.core.values.shapes import Float, UInt8

_UINT8 = np.dtype(np.uint8)


def readonly(array: object, *, dtype: type = np.float64) -> np.ndarray:
    """The array as `dtype`, not writeable; copies only if a caller could still write to it."""
    out: np.ndarray = np.asarray(array, dtype=dtype)
    owner: object = out
    while isinstance(owner, np.ndarray):
        if owner.flags.writeable:
            out = out.copy()
            out.flags.writeable = False
            return out
        owner = owner.base
    return out


def _whole_ns(t_ns: object) -> int:
    """A stamp as a plain number; ValueError if it is not whole."""
    if not isinstance(t_ns, int | np.integer):
        raise ValueError(f"t_ns must be whole nanoseconds, got {t_ns!r:.100}")
    return int(t_ns)


_NO_NUMBERS = readonly(np.zeros(0))


class RobotState(Struct, frozen=True, kw_only=True, eq=False, dict=True):
    """One measured snapshot of arm, gripper and mobile base, taken at `t_ns` on the robot's clock.

    A part the robot does not have is None (base, gripper, hand) or empty (joints). A robot bolted to a table
    has no base pose: then B is the arm mount.
    """

    t_ns: int
    """Capture time [ns], robot's monotonic clock; of the part measured first, where parts differ."""
    q: Float[np.ndarray, " N"]
    """Joint positions (N,) [rad]."""
    dq: Float[np.ndarray, " N"]
    """Joint velocities (N,) [rad/s]."""
    X_BE: pin.SE3 | None = None
    """End effector E in the mobile base B."""
    gripper_width: float | None = None
    """Distance between the fingers [m]."""
    x_WB: Float[np.ndarray, "3"] | None = None
    """Mobile base in the world/odometry frame (x, y, yaw) [m, m, rad]."""
    V_WB_B: Float[np.ndarray, "3"] | None = None
    """Twist of the base (vx, vy, wz) [m/s, m/s, rad/s], expressed in B."""
    measured: Mapping[str, Float[np.ndarray, " K"]] = field(default_factory=dict)
    """Further quantities by name; under the name of `Numbers.part`, where what they lead is."""
    t_newest_ns: int | None = None
    """Capture time of the part measured last [ns]; None: all at `t_ns`."""

    def __post_init__(self) -> None:
        if type(self.t_ns) is not int:
            force_setattr(self, "t_ns", _whole_ns(self.t_ns))
        if self.X_BE is not None:
            force_setattr(self, "X_BE", self.X_BE.copy())
        if type(self.gripper_width) not in (float, NoneType):
            force_setattr(self, "gripper_width", _width(self.gripper_width))
        force_setattr(self, "q", readonly(self.q))
        force_setattr(self, "dq", readonly(self.dq))
        if self.q.shape != self.dq.shape or self.q.ndim != 1:
            raise ValueError(f"q and dq must both be (N,), got {self.q.shape} and {self.dq.shape}")
        for name in ("x_WB", "V_WB_B"):
            value = getattr(self, name)
            if value is not None:
                value = readonly(value)
                if value.shape != (3,):
                    raise ValueError(f"{name} must be (3,), got {value.shape}")
                force_setattr(self, name, value)

    @cached_property
    def is_finite(self) -> bool:
        """False if any measured number is NaN or infinite. Looked at several times a tick, so found once."""
        numbers = self.q.tolist() + self.dq.tolist()
        for part in (self.x_WB, self.V_WB_B):
            if part is not None:
                numbers += part.tolist()
        if self.X_BE is not None:
            numbers += self.X_BE.homogeneous.ravel().tolist()
        if self.gripper_width is not None:
            numbers.append(self.gripper_width)
        for value in self.measured.values():
            numbers += value.ravel().tolist()
        return all(map(math.isfinite, numbers))  # in plain numbers: a quarter of numpy's time


def _width(width: object) -> float:
    number = np.asarray(width)
    if number.size != 1 or number.dtype.kind not in "fiu":
        raise ValueError(f"gripper_width must be one number [m], got {width!r:.100}")
    return float(number.item())


class Image(Struct, frozen=True, kw_only=True, eq=False, gc=False):
    """One camera frame with its own capture time."""

    t_ns: int
    """Capture time [ns], robot's monotonic clock."""
    pixels: UInt8[np.ndarray, "h w 3"]
    """RGB, row 0 on top."""

    def __post_init__(self) -> None:
        if self.pixels.ndim != 3 or self.pixels.shape[2] != 3 or self.pixels.dtype != _UINT8:
            raise ValueError(f"an image is (h, w, 3) uint8, got {self.pixels.shape} {self.pixels.dtype}")
        if type(self.t_ns) is not int:
            force_setattr(self, "t_ns", _whole_ns(self.t_ns))
        force_setattr(self, "pixels", readonly(self.pixels, dtype=np.uint8))


class Observation(Struct, frozen=True, kw_only=True, eq=False, gc=False):
    """What a policy is asked with: state, images and the task in words.

    picture      state                 rows 0, 1, 2 ...         answer
    |------------|-----|-----|-----|-----|-----|-----|-----|-----|
    t_oldest_ns  t_obs_ns: row 0 is due here, and d counts from here
    |<----------------- delay: what the robot reacts to is so old ->|

    name                what                                        shape, unit
    state               measured robot state                        see RobotState
    images              camera name -> frame, each with its time    (h, w, 3) uint8
    environment_state   scene quantities where there are no images  (K,), task's own units
    task                what to do                                  text
    """

    state: RobotState
    images: Mapping[str, Image] = field(default_factory=dict)
    environment_state: Float[np.ndarray, " K"] = _NO_NUMBERS
    task: str = ""

    def __post_init__(self) -> None:
        force_setattr(self, "images", MappingProxyType(dict(self.images)))
        force_setattr(self, "environment_state", readonly(self.environment_state))

    @property
    def t_obs_ns(self) -> int:
        """Capture time of the state [ns]; row times of the answer are counted from it."""
        return self.state.t_ns

    @property
    def t_oldest_ns(self) -> int:
        """Capture time of its oldest part, state or picture [ns]; delay counts from it."""
        return min([self.state.t_ns, *(image.t_ns for image in self.images.values())])
