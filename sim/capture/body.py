"""The person's body: how it moves with base and hand, and what cameras see of it.

       head                     walking    hips up and down, pitch (1.8 Hz); from side to side (0.9 Hz)
hand --- shoulder               reaching   the spine leans about the hips as far as the arm is too short
          |  spine, T           turning    the chest turns towards the hand a little, and sways
B ------ hips                   All of it through second-order filters: camera motion has no steps
"""

import math
from dataclasses import dataclass

import mujoco
import numpy as np
import pinocchio as pin
from jaxtyping import Float

from robot_runtime.core.values.transforms import compose_planar, turn_planar

STEP_HZ = 1.8
SHOULDER, ARM_LENGTH = (0.02, -0.19, 0.43), 0.64
"""Right shoulder in T, and its distance to the hand of a stretched arm [m]."""
HIP_SIDE, THIGH, SHIN = 0.09, 0.46, 0.46
_GRIP_BEHIND = 0.10
"""From E back to the gripper's handle [m]."""
_SKIN, _SHIRT, _TROUSERS = [0.87, 0.68, 0.55, 1.0], [0.25, 0.42, 0.62, 1.0], [0.28, 0.29, 0.34, 1.0]
_PARTS = ("torso", "head", "upper_arm", "forearm", "thigh_0", "shin_0", "thigh_1", "shin_1")


@dataclass(frozen=True, kw_only=True)
class Build:
    """An individual's body and gait."""

    hips_height: float = 0.93
    p_BP: tuple[float, float] = (0.16, 0.0)
    """Position of the hips in B: a robot keeps a larger distance [m]."""
    chest_turn: float = 0.0
    """Constant yaw of the chest relative to B [rad]."""
    bob: float = 0.018
    sway: float = 0.016
    pitch: float = 0.035
    """Amplitudes at walking speed: vertical and lateral hip motion [m], spine pitch [rad]."""
    lean_max: float = 0.44
    """Largest lean [rad]."""
    turn_share: float = 0.15
    """Share of the direction to the hand by which the chest turns."""


class _Smooth:
    """A number that tracks another one within about `time_s`, with continuous speed."""

    def __init__(self, value: float, time_s: float) -> None:
        self.value, self._v, self._w = value, 0.0, 2.0 / time_s

    def follow(self, target: float, dt_s: float) -> float:
        """Advance by one step; returns the value."""
        self._v += dt_s * (self._w**2 * (target - self.value) - 2.0 * self._w * self._v)
        self.value += dt_s * self._v
        return self.value


@dataclass(frozen=True, kw_only=True, eq=False)
class Posture:
    """Poses of the body at one time."""

    X_WT: pin.SE3
    """Pose of the torso."""
    x_WG: Float[np.ndarray, "3"]
    """Pose on the floor without gait: hips (x, y) and the chest's yaw. The truth that labels estimate."""
    phase: float
    """Phase of the gait; a double step is 2 pi [rad]."""
    walking: float
    """0 standing, 1 at walking speed."""


class BodyMotion:
    """Computes the posture from B, its velocity and the hand, step by step."""

    def __init__(self, build: Build, rng: np.random.Generator, *, phase: float = 0.0) -> None:
        self._build, self._phase, self._t = build, phase, 0.0
        self._walking = _Smooth(0.0, 0.5)
        self._lean, self._roll = _Smooth(0.05, 0.5), _Smooth(0.0, 0.5)
        self._turn = _Smooth(build.chest_turn, 0.6)
        self._slow = rng.uniform(0.0, 2 * np.pi, size=4)

    def follow(
        self,
        x_WB: Float[np.ndarray, "3"],
        v_W: Float[np.ndarray, "3"],
        p_WE: Float[np.ndarray, "3"],
        dt_s: float,
    ) -> Posture:
        """The posture a step later, with B at x_WB, its velocity v_W, and the hand at p_WE."""
        build = self._build
        self._t += dt_s
        speed = math.hypot(v_W[0], v_W[1]) + 0.25 * abs(v_W[2])
        walking = self._walking.follow(min(1.0, speed / 0.4), dt_s)
        self._phase += dt_s * math.pi * STEP_HZ * (0.75 + 0.25 * walking)
        hips = compose_planar(x_WB, np.array([*build.p_BP, 0.0]))
        to_hand = turn_planar(p_WE[:2] - hips[:2], -x_WB[2])
        towards = math.atan2(to_hand[1], max(0.25, to_hand[0]))
        wobble = 0.03 * math.sin(0.9 * self._t + self._slow[0]) + 0.02 * math.sin(
            0.37 * self._t + self._slow[1]
        )
        turn = self._turn.follow(build.chest_turn + build.turn_share * towards + wobble, dt_s)
        lean = self._lean.follow(self._wanted_lean(hips, to_hand, float(p_WE[2])), dt_s)
        roll = self._roll.follow(0.02 * math.sin(0.6 * self._t + self._slow[2]), dt_s)
        pitch = lean + walking * build.pitch * math.sin(2 * self._phase + 0.6)
        side = walking * build.sway * math.sin(self._phase)
        yaw = float(x_WB[2]) + turn
        up = build.hips_height + walking * build.bob * math.sin(2 * self._phase) - 0.25 * max(0.0, lean) ** 2
        across = turn_planar(np.array([0.0, side]), yaw)
        R = pin.utils.rotate("z", yaw) @ pin.utils.rotate("y", pitch) @ pin.utils.rotate("x", roll)
        X_WT = pin.SE3(R, np.array([hips[0] + across[0], hips[1] + across[1], up]))
        return Posture(
            X_WT=X_WT, x_WG=np.array([hips[0], hips[1], yaw]), phase=self._phase, walking=float(walking)
        )

    def _wanted_lean(
        self, hips: Float[np.ndarray, "3"], to_hand: Float[np.ndarray, "2"], hand_z: float
    ) -> float:
        """The lean that makes up for what an upright person's arm lacks to reach the gripper [rad]."""
        shoulder_z = self._build.hips_height + SHOULDER[2]
        far = math.hypot(
            float(np.hypot(to_hand[0] - SHOULDER[0], to_hand[1] - SHOULDER[1])), shoulder_z - hand_z
        )
        return min(self._build.lean_max, 0.04 + max(0.0, far - 0.85 * ARM_LENGTH) / SHOULDER[2])


def add_body(spec: mujoco.MjSpec) -> None:
    """Add the visible body, each part on a mocap body without contacts."""
    capsule, ball = mujoco.mjtGeom.mjGEOM_CAPSULE, mujoco.mjtGeom.mjGEOM_SPHERE
    shapes = {
        "torso": [(capsule, [0.125, 0.17], [0.0, 0.0, 0.24], _SHIRT)],
        "head": [(ball, [0.105, 0.0], [0.0, 0.0, 0.0], _SKIN), (capsule, [0.05, 0.05], [0, 0, -0.12], _SKIN)],
        "upper_arm": [(capsule, [0.045, ARM_LENGTH / 4 - 0.01], [0.0, 0.0, 0.0], _SHIRT)],
        "forearm": [(capsule, [0.036, ARM_LENGTH / 4 - 0.01], [0.0, 0.0, 0.0], _SKIN)],
    }
    for i in (0, 1):
        shapes[f"thigh_{i}"] = [(capsule, [0.075, THIGH / 2 - 0.03], [0.0, 0.0, 0.0], _TROUSERS)]
        shapes[f"shin_{i}"] = [(capsule, [0.055, SHIN / 2 - 0.03], [0.0, 0.0, 0.0], _TROUSERS)]
    for name in _PARTS:
        body = spec.worldbody.add_body(name=f"person_{name}", mocap=True)
        for kind, size, p, rgba in shapes[name]:
            body.add_geom(
                type=kind, size=[*size, 0.0][:3], pos=p, rgba=rgba, contype=0, conaffinity=0, mass=0.0
            )


class BodyShown:
    """Poses the visible parts of the body by a posture."""

    def __init__(self, model: mujoco.MjModel, data: mujoco.MjData) -> None:
        self._data = data
        self._ids = {name: int(model.body(f"person_{name}").mocapid[0]) for name in _PARTS}

    def show(self, posture: Posture, X_WE: pin.SE3) -> None:
        """Pose torso and head, the arm up to the gripper, and the legs down to the floor."""
        X_WT = posture.X_WT
        self._put("torso", X_WT.translation, X_WT.rotation)
        self._put("head", X_WT.act(np.array([0.03, 0.0, 0.66])), X_WT.rotation)
        grip = X_WE.act(np.array([0.0, 0.0, -_GRIP_BEHIND]))
        right = X_WT.rotation[:, 1]
        half = ARM_LENGTH / 2
        self._limb("upper_arm", "forearm", X_WT.act(np.array(SHOULDER)), grip, half, half, -right)
        forwards = X_WT.rotation[:, 0]
        for i, side in enumerate((1.0, -1.0)):
            hip = X_WT.act(np.array([0.0, side * HIP_SIDE, 0.0]))
            phase = posture.phase + (0.0 if i == 0 else math.pi)
            stride = 0.16 * posture.walking * math.cos(phase)
            lift = 0.07 * posture.walking * max(0.0, -math.sin(phase))
            foot = np.array([hip[0], hip[1], 0.06 + lift])
            foot[:2] += stride * forwards[:2] / max(1e-6, float(np.linalg.norm(forwards[:2])))
            self._limb(f"thigh_{i}", f"shin_{i}", hip, foot, THIGH, SHIN, forwards)

    def _limb(
        self,
        upper: str,
        lower: str,
        start: Float[np.ndarray, "3"],
        end: Float[np.ndarray, "3"],
        length_a: float,
        length_b: float,
        bends: Float[np.ndarray, "3"],
    ) -> None:
        """Pose two links from start to end, the joint between them towards `bends`."""
        span = end - start
        far = math.sqrt(span @ span)
        d = min(far, 0.999 * (length_a + length_b))
        unit = span / max(far, 1e-6)
        along = (d**2 + length_a**2 - length_b**2) / (2 * d)
        out = bends - (bends @ unit) * unit
        out /= max(math.sqrt(out @ out), 1e-6)
        middle = start + along * unit + math.sqrt(max(0.0, length_a**2 - along**2)) * out
        self._put(upper, 0.5 * (start + middle), _along(middle - start))
        self._put(lower, 0.5 * (middle + end), _along(end - middle))

    def _put(self, name: str, p: Float[np.ndarray, "3"], R: Float[np.ndarray, "3 3"]) -> None:
        i = self._ids[name]
        self._data.mocap_pos[i] = p
        mujoco.mju_mat2Quat(self._data.mocap_quat[i], R.ravel())


def _along(direction: Float[np.ndarray, "3"]) -> Float[np.ndarray, "3 3"]:
    """A rotation whose z points along a direction."""
    x, y, z = direction.tolist()  # plain floats: ten times as fast, and it runs a thousand times a second
    far = max(math.sqrt(x * x + y * y + z * z), 1e-6)
    x, y, z = x / far, y / far, z / far
    a, b, c = (z, 0.0, -x) if abs(y) < 0.9 else (0.0, -z, y)
    across = math.sqrt(a * a + b * b + c * c)
    a, b, c = a / across, b / across, c / across
    return np.array([[a, y * c - z * b, x], [b, z * a - x * c, y], [c, x * b - y * a, z]])
