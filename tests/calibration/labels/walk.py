"""Paths of a person with two devices, and odometry that drifts: what labels are tested on, exactly known."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pinocchio as pin
from scipy.ndimage import gaussian_filter1d
from scipy.spatial.transform import Rotation

from calibration.camera import CameraModel
from calibration.capture.raw import CaptureWriter, RawCapture
from calibration.capture.values import DeviceInfo, Setup
from calibration.labels.closure import Tie
from calibration.trajectory import Trajectory

RATE_HZ = 30.0
X_HE = pin.SE3(pin.rpy.rpyToMatrix(0.2, 0.0, 0.1), np.array([0.0, 0.05, 0.2]))
R_CAMERA = np.array([[0.0, 0.0, 1.0], [-1.0, 0.0, 0.0], [0.0, -1.0, 0.0]])
"""A camera that looks along x of the body, its picture upright."""
PITCH = np.deg2rad(25.0)
"""By which the chest camera looks down."""
CHEST_P_HIPS = np.array([0.12, 0.02, 0.42])
"""The chest camera from the hips, the person upright [m]."""
HIPS_Z = 0.95


@dataclass(frozen=True, kw_only=True, eq=False)
class Walk:
    """What truly happened, in a room whose floor is z = 0."""

    t_ns: np.ndarray
    x_WG: np.ndarray
    chest: Trajectory
    camera: Trajectory
    """Of the hand."""
    X_WB: pin.SE3


def walk(
    seed: int = 0, *, seconds: float = 20.0, speed: float = 0.6, sway: bool = True, lean: float = 0.3
) -> Walk:
    """Away from the board and back to it, stopping in between; the hand moves about in front."""
    rng = np.random.default_rng(seed)
    n = round(seconds * RATE_HZ)
    t = np.arange(n) / RATE_HZ
    calm = RATE_HZ * 0.4
    goes = gaussian_filter1d((np.sin(2 * np.pi * t / seconds * 3.0) > -0.3).astype(float), calm)
    heading_rate = gaussian_filter1d(rng.normal(0.0, 1.0, n), RATE_HZ) * 2.0
    yaw = np.cumsum(heading_rate) / RATE_HZ
    v = speed * goes
    xy = np.column_stack([np.cumsum(v * np.cos(yaw)), np.cumsum(v * np.sin(yaw))]) / RATE_HZ
    x_WG = np.column_stack([xy, yaw])
    walking = goes * float(sway)
    side = 0.02 * np.sin(2 * np.pi * 0.9 * t) * walking
    up = 0.02 * np.sin(2 * np.pi * 1.8 * t) * walking
    nod = np.deg2rad(3.0) * np.sin(2 * np.pi * 1.8 * t + 1.0) * walking
    bent = lean * (1.0 - goes) * (0.5 - 0.5 * np.cos(2 * np.pi * 0.3 * t))
    chest_R, chest_p, hand_R, hand_p = [], [], [], []
    reach = gaussian_filter1d(rng.normal(0.0, 1.0, (n, 3)), RATE_HZ * 0.4, axis=0) * 0.3
    turns = gaussian_filter1d(rng.normal(0.0, 1.0, (n, 3)), RATE_HZ * 0.4, axis=0) * 1.2
    for i in range(n):
        X_WG = pin.SE3(pin.utils.rotate("z", yaw[i]), np.array([*xy[i], 0.0]))
        hips = X_WG * pin.SE3(
            pin.utils.rotate("y", nod[i] + bent[i]), np.array([0.0, side[i], HIPS_Z + up[i]])
        )
        X_WC = hips * pin.SE3(pin.utils.rotate("y", PITCH) @ R_CAMERA, CHEST_P_HIPS)
        middle = X_WG * pin.SE3(pin.exp3(turns[i]) @ R_CAMERA, np.array([0.5, -0.1, 1.0]) + reach[i])
        chest_R.append(X_WC.rotation)
        chest_p.append(X_WC.translation)
        hand_R.append(middle.rotation)
        hand_p.append(middle.translation)
    t_ns = (np.arange(n) * round(1e9 / RATE_HZ)).astype(np.int64) + 10**9
    return Walk(
        t_ns=t_ns,
        x_WG=x_WG,
        chest=Trajectory.of(t_ns, [pin.SE3(R, p) for R, p in zip(chest_R, chest_p, strict=True)]),
        camera=Trajectory.of(t_ns, [pin.SE3(R, p) for R, p in zip(hand_R, hand_p, strict=True)]),
        X_WB=pin.SE3(np.diag([1.0, -1.0, -1.0]), np.array([0.8, 0.0, 0.0])),
    )


def world(rng: np.random.Generator) -> pin.SE3:
    """An odometry's: z up, its own yaw and origin; X_VW."""
    return pin.SE3(pin.utils.rotate("z", rng.uniform(-np.pi, np.pi)), rng.normal(0.0, 1.0, 3))


def odometry(
    path: Trajectory, X_VW: pin.SE3, rng: np.random.Generator, *, walk_m: float = 0.0, walk_rad: float = 0.0
) -> Trajectory:
    """What a device says: yaw and place walk with the root of the way."""
    steps = np.diff(path.p, axis=0)
    root = np.sqrt(np.linalg.norm(steps, axis=1))
    yaw = np.concatenate([[0.0], np.cumsum(rng.normal(size=len(root)) * walk_rad * root)])
    turn = Rotation.from_euler("z", yaw[:, None])
    moved = turn[:-1].apply(steps) + walk_m * rng.normal(size=steps.shape) * root[:, None]
    p = path.p[0] + np.vstack([np.zeros(3), np.cumsum(moved, axis=0)])
    q = (turn * Rotation.from_quat(path.q, scalar_first=True)).as_quat(scalar_first=True)
    return Trajectory(t_ns=path.t_ns, p=p, q=q, tracking=path.tracking).before(X_VW)


def tie(
    truth: Walk,
    chest: Trajectory,
    hand: Trajectory,
    i: int,
    *,
    sigma: tuple[float, float] = (0.0, 0.0),
    rng: np.random.Generator,
) -> Tie:
    """An anchor by views at sample i, wrong by sigma ([m], [rad]) per axis at the board."""
    X_WcB = chest[i] * truth.chest[i].inverse() * truth.X_WB
    X_WhB = hand[i] * truth.camera[i].inverse() * truth.X_WB
    e = np.concatenate([rng.normal(0.0, sigma[0], 3), rng.normal(0.0, sigma[1], 3)])
    wrong = pin.SE3(pin.exp3(e[3:]), np.zeros(3))
    about = pin.SE3(np.eye(3), X_WcB.translation)
    A = pin.SE3(np.eye(3), e[:3]) * about * wrong * about.inverse() * X_WcB * X_WhB.inverse()
    floor = np.maximum(sigma, 1e-5)
    P = np.diag([floor[0] ** 2] * 3 + [floor[1] ** 2] * 3)
    t_ns = int(truth.t_ns[i])
    return Tie(chest_ns=t_ns, hand_ns=t_ns, X_WcWh=A, X_WcB=X_WcB, covariance=P)


def capture_of(
    path: Path,
    truth: Walk,
    chest: Trajectory,
    hand: Trajectory,
    *,
    lean: bool = False,
    more: dict | None = None,
    size: tuple[int, int] | None = None,
    cameras: Mapping[str, CameraModel] | None = None,
) -> RawCapture:
    """A capture of one demonstration, the whole walk; both devices on one clock, with pictures' times."""
    lenses = {role: camera.to_dict() for role, camera in (cameras or {}).items()}
    setup = Setup(
        devices={
            "chest": DeviceInfo(
                kind="simulated",
                size=size,
                fps=None if size is None else RATE_HZ,
                camera=lenses.get("chest"),
            ),
            "hand": DeviceInfo(
                kind="simulated",
                size=size,
                fps=None if size is None else RATE_HZ,
                X_HE=X_HE,
                camera=lenses.get("hand"),
                gripper="sensor",
            ),
        },
        task="fetch the cup",
        more={"board_height_m": 0.0} if more is None else more,
    )
    with CaptureWriter(path, setup, when="2026-11-26T10:00:00+00:00") as writer:
        writer.poses("chest", chest)
        writer.poses("hand", hand)
        for i, t_ns in enumerate(truth.t_ns.tolist()):
            for role in ("chest", "hand"):
                if size is None:
                    writer.frame(role, t_ns)
                else:
                    writer.picture(role, t_ns, _picture(i, size))
        cup_W = np.array([1.5, 0.2, 0.8])
        for i in range(0, len(truth.t_ns), 10):
            writer.width("hand", int(truth.t_ns[i]), 0.04)
            p = truth.chest[i].actInv(cup_W)
            writer.glimpse("chest", int(truth.t_ns[i]), "cup", p.tolist(), 0.01)
        if lean:
            writer.mark(int(truth.t_ns[0]), "lean_begin", "test")
            writer.mark(int(truth.t_ns[-1]), "lean_end", "test")
        writer.mark(int(truth.t_ns[0]), "begin", "test")
        writer.mark(int(truth.t_ns[-1]) + 1, "end", "test")
    return RawCapture.open(path)


def _picture(i: int, size: tuple[int, int]) -> np.ndarray:
    """A bar that moves on."""
    out = np.full((*size, 3), 40, dtype=np.uint8)
    out[:, (3 * i) % size[1] :] = 180
    return out
