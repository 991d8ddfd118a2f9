"""A session made of curves alone, without physics: for statistics over many seeds.

    sync   lean   anchor   walk somewhere, grip, walk on, ... and back   anchor   sync

    T   torso: in the hips, x forward, z up; leans about its y        G   below the hips on the floor
    C   the chest camera, 0.4 m over the hips, looks down             H, E   the wrist camera and the TCP

Walking sways: 20 mm to the sides at 0.9 Hz, 25 mm up and 4 degrees of pitch at 1.8 Hz.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pinocchio as pin
from jaxtyping import Float
from numpy.typing import ArrayLike
from scipy.ndimage import gaussian_filter1d
from scipy.spatial.transform import Rotation

from calibration.board import Board
from calibration.trajectory import OK, Trajectory, slerp
from sim.capture import faults as fault
from sim.capture.faults import Fault
from sim.capture.performance import PERIOD_NS
from sim.capture.scene import BOARD, X_EH, chest_camera
from sim.capture.takes import ANCHOR, DEMONSTRATION, LEAN, SYNC, Take

HIPS_Z = 0.93
_RATE = 1e9 / PERIOD_NS
_SMOOTH_S, _STEP_S = 0.22, 0.30

Key = tuple[float, Sequence[float]]
"""A time [s] and the values at that time."""


def looking(direction: ArrayLike, up: ArrayLike = (0.0, 0.0, 1.0)) -> Float[np.ndarray, "3 3"]:
    """Rotation of an optical frame that looks along a direction, with `up` upwards in its image."""
    z = np.asarray(direction, float) / np.linalg.norm(direction)
    x = np.cross(z, np.asarray(up, float))
    x /= np.linalg.norm(x)
    return np.column_stack([x, np.cross(z, x), z])


X_TC = chest_camera(p_TC=(0.15, 0.0, 0.40), down=0.70)
"""Pose of the chest camera in T."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Walk:
    """Paths of all frames at N true times, 250 Hz from 0."""

    X_WC: Trajectory
    X_WE: Trajectory
    x_WG: Float[np.ndarray, "N 3"]
    width: Float[np.ndarray, " N"]

    @property
    def X_WH(self) -> Trajectory:
        return self.X_WE.then(X_EH)


@dataclass(frozen=True, kw_only=True)
class Script:
    """A person's motion as keyframes, with smooth interpolation.

    body: x, y, yaw of G. torso: pitch forward, roll to the right, turn to the left against G [degrees].
    hand: x, y, z and the turn (rotation vector) of E in T, upright torso. grips: spans [s] in which the hand
    is stationary in W. width: of the gripper [m].
    """

    seconds: float
    body: Sequence[Key]
    torso: Sequence[Key] = ((0.0, (0.0, 0.0, 0.0)),)
    hand: Sequence[Key] = field(default=((0.0, (0.42, -0.12, 0.12, 0.0, 0.0, 0.0)),))
    grips: Sequence[tuple[float, float]] = ()
    width: Sequence[Key] = ((0.0, (0.08,)),)


HAND_NEUTRAL = np.column_stack([[0.5, 0, np.sqrt(0.75)], [0, 1, 0], [np.sqrt(0.75), 0, -0.5]])
HAND_NEUTRAL[:, 1] = np.cross(HAND_NEUTRAL[:, 2], HAND_NEUTRAL[:, 0])
"""Orientation of E in T when nothing is held: forward and 30 degrees down, x up."""


def perform(script: Script, rng: np.random.Generator) -> Walk:
    """Compute the walk of a script, with gait and sway."""
    t = np.arange(0.0, script.seconds, 1.0 / _RATE)
    t_ns = np.rint(t * 1e9).astype(np.int64)
    body = _smooth(t, script.body, seconds=_STEP_S)
    speed = np.linalg.norm(np.gradient(body[:, :2], t, axis=0), axis=1)
    gait = gaussian_filter1d(np.clip(speed / 0.5, 0.0, 1.0), 0.3 * _RATE, mode="nearest")
    phase = rng.uniform(0.0, 2.0 * np.pi)
    step, sway = 2 * np.pi * 1.8 * t + phase, 2 * np.pi * 0.9 * t + 0.5 * phase
    torso = _smooth(t, script.torso)
    torso[:, 0] += 4.0 * gait * np.sin(step + 0.7) + 0.8 * _restless(rng, t)
    torso[:, 1] += 1.5 * gait * np.sin(sway) + 0.5 * _restless(rng, t)
    torso[:, 2] += 3.0 * gait * np.sin(sway + 0.4)
    body[:, 2] += np.deg2rad(0.6) * _restless(rng, t)
    side = 0.020 * gait * np.sin(sway) + 0.003 * _restless(rng, t)
    up = 0.025 * gait * np.sin(step)
    R_WG = Rotation.from_euler("z", body[:, 2:])
    p_WT = np.column_stack([body[:, :2], np.full(len(t), HIPS_Z)])
    p_WT = p_WT + R_WG.apply(np.column_stack([0.003 * _restless(rng, t), side, up]))
    R_WT = R_WG * Rotation.from_euler("ZYX", torso[:, [2, 0, 1]], degrees=True)
    X_WC = _trajectory(t_ns, p_WT, R_WT).then(X_TC)
    X_WE = _hand(script, t, p_WT, R_WT, body, rng)
    return Walk(X_WC=X_WC, X_WE=X_WE, x_WG=body, width=_smooth(t, script.width, seconds=0.06)[:, 0])


def _hand(
    script: Script,
    t: np.ndarray,
    p_WT: np.ndarray,
    R_WT: Rotation,
    body: np.ndarray,
    rng: np.random.Generator,
) -> Trajectory:
    """The path of E: the arm compensates most of a lean; stationary in W during grips."""
    keys = _smooth(t, script.hand)
    keys[:, :3] += 0.006 * np.column_stack([_restless(rng, t) for _ in range(3)])
    keys[:, 3:] += np.deg2rad(1.5) * np.column_stack([_restless(rng, t) for _ in range(3)])
    R_WG = Rotation.from_euler("z", body[:, 2:])
    steady = p_WT * 0.4 + 0.6 * np.column_stack([body[:, :2], np.full(len(t), HIPS_Z)])
    R = R_WG * Rotation.from_rotvec(keys[:, 3:]) * Rotation.from_matrix(HAND_NEUTRAL)
    p, q = steady + R_WG.apply(keys[:, :3]), R.as_quat(scalar_first=True)
    for begin, end in script.grips:
        i = int(np.searchsorted(t, 0.5 * (begin + end)))
        inside = ((t >= begin) & (t < end)).astype(float)
        share = gaussian_filter1d(inside, 0.15 * _RATE, mode="nearest")
        p = p + share[:, None] * (p[i] - p)
        q = slerp(q, np.repeat(q[i : i + 1], len(q), axis=0), share)
    return Trajectory(t_ns=np.rint(t * 1e9).astype(np.int64), p=p, q=q, tracking=np.full(len(t), OK))


def shaken(seconds: float, X_WC: pin.SE3, X_CH: pin.SE3, rng: np.random.Generator) -> Walk:
    """Both devices pressed together and turned about the chest camera, to synchronise their clocks."""
    t = np.arange(0.0, seconds, 1.0 / _RATE)
    t_ns = np.rint(t * 1e9).astype(np.int64)
    fade = np.clip(np.minimum(t, seconds - t) / 1.0, 0.0, 1.0)
    turn = np.deg2rad(20.0) * fade[:, None] * np.column_stack([_restless(rng, t, hz=0.9) for _ in range(3)])
    p = X_WC.translation + 0.04 * fade[:, None] * np.column_stack(
        [_restless(rng, t, hz=0.8) for _ in range(3)]
    )
    C = _trajectory(t_ns, p, Rotation.from_matrix(X_WC.rotation) * Rotation.from_rotvec(turn))
    x_WG = np.tile([X_WC.translation[0] - 0.3, X_WC.translation[1], 0.0], (len(t), 1))
    return Walk(X_WC=C, X_WE=C.then(X_CH * X_EH.inverse()), x_WG=x_WG, width=np.full(len(t), 0.08))


def held_by_hand(walk: Walk, keys: Sequence[tuple[float, pin.SE3]]) -> Walk:
    """The same walk, with the wrist camera moved through poses in W [s, X_WH]."""
    t_ns = walk.X_WE.t_ns
    H = Trajectory.of(np.array([round(at * 1e9) for at, _ in keys]), [X for _, X in keys])
    inside = np.clip(t_ns, H.t_ns[0], H.t_ns[-1])
    i = np.clip(np.searchsorted(H.t_ns, inside, side="right") - 1, 0, len(H) - 2)
    u = (inside - H.t_ns[i]) / (H.t_ns[i + 1] - H.t_ns[i])
    p = H.p[i] + u[:, None] * (H.p[i + 1] - H.p[i])
    q = slerp(H.q[i], H.q[i + 1], u)
    signs = np.concatenate([[1.0], np.cumprod(np.where((q[1:] * q[:-1]).sum(axis=1) < 0, -1.0, 1.0))])
    width = _SMOOTH_S * _RATE
    p = gaussian_filter1d(p, width, axis=0, mode="nearest")
    q = gaussian_filter1d(q * signs[:, None], width, axis=0, mode="nearest")
    q /= np.linalg.norm(q, axis=1, keepdims=True)
    E = Trajectory(t_ns=t_ns, p=p, q=q, tracking=np.full(len(p), OK)).then(X_EH.inverse())
    return Walk(X_WC=walk.X_WC, X_WE=E, x_WG=walk.x_WG, width=walk.width)


def _smooth(t: np.ndarray, keys: Sequence[Key], *, seconds: float = _SMOOTH_S) -> np.ndarray:
    """(N, K): linear between the keys, then smoothed over `seconds`."""
    at, values = np.array([key[0] for key in keys]), np.array([key[1] for key in keys], dtype=float)
    straight = np.column_stack([np.interp(t, at, values[:, k]) for k in range(values.shape[1])])
    return gaussian_filter1d(straight, seconds * _RATE, axis=0, mode="nearest")


def _restless(rng: np.random.Generator, t: np.ndarray, *, hz: float = 0.35) -> np.ndarray:
    """(N,) noise of unit variance with a bandwidth of about `hz`."""
    white = rng.normal(size=len(t))
    slow = gaussian_filter1d(white, _RATE / (2.0 * np.pi * hz), mode="wrap")
    return slow / max(float(slow.std()), 1e-9)


def _trajectory(t_ns: np.ndarray, p: np.ndarray, R: Rotation) -> Trajectory:
    return Trajectory(t_ns=t_ns, p=p, q=R.as_quat(scalar_first=True), tracking=np.full(len(p), OK))


BOARD_Z = 0.75
"""Height of the table that the board lies on [m]."""
CHEST_Z = HIPS_Z + float(X_TC.translation[2])
"""Height of the chest camera over the floor when upright [m]."""
_BOARD_XY = (0.62, 0.0)
_STATION_S, _MOVE_S = 2.2, 0.9
_ORDER = {"sync": 1, "anchor": 2, "lean": 3, "walk": 4}


def session(
    seed: int, *, metres: Sequence[float] = (2.0,), faults: tuple[Fault, ...] = (), re_anchored: bool = True
) -> list[Take]:
    """The takes of a careful person; one demonstration for each path length in `metres`.

    re_anchored: view the board again at the end. faults: those made by people change the clips.
    """
    frontal = fault.find(faults, fault.FrontalAnchor) is not None
    apart = fault.find(faults, fault.BoardMoved) is not None
    takes = [
        sync_take(_rng(seed, "sync", 0)),
        lean_take(_rng(seed, "lean", 0)),
        anchor_take(_rng(seed, "anchor", 0), frontal=frontal, apart=apart),
    ]
    takes += [walk_take(_rng(seed, "walk", i), metres=each) for i, each in enumerate(metres)]
    if re_anchored:
        takes.append(anchor_take(_rng(seed, "anchor", 1), frontal=frontal))
    return [*takes, sync_take(_rng(seed, "sync", 1))]


def sync_take(rng: np.random.Generator) -> Take:
    """Both devices pressed together and turned about for eight seconds."""
    R = looking((1.0, 0.0, -0.3))
    X_WC = pin.SE3(R, np.array([0.35, 0.0, 1.15]))
    return _take(
        SYNC, shaken(8.0, X_WC, pin.SE3(pin.utils.rotate("y", 0.2), np.array([0.09, 0.02, -0.03])), rng)
    )


def anchor_take(
    rng: np.random.Generator,
    *,
    stations: int = 7,
    frontal: bool = False,
    apart: bool = False,
    board: Board = BOARD,
) -> Take:
    """Chest and wrist cameras view the board from several sides, pausing at each.

    frontal: always straight on. apart: the wrist camera views it after the chest has turned away.
    """
    centre = np.array([*_BOARD_XY, BOARD_Z])
    chest = np.array([0.02, 0.0, 0.0]) + np.array([X_TC.translation[0], 0.0, CHEST_Z])
    into = (centre - chest) / np.linalg.norm(centre - chest) if frontal else np.array([0.0, 0.0, -1.0])
    R_WB = looking(into, (1.0, 0.0, 0.0) if not frontal else (0.0, 0.0, 1.0))
    X_WB = pin.SE3(R_WB, centre - R_WB @ board.centre_B)
    t, body, torso, hand = 0.0, [], [], []
    for k in range(2 * stations if apart else stations):
        away = apart and k >= stations
        x, y = (0.02, 0.0) if frontal else (rng.uniform(-0.16, 0.14), rng.uniform(-0.22, 0.22))
        yaw = -1.2 * y + (1.6 if away else 0.0)
        lean = (2.0, 0.0, 0.0) if frontal else (rng.uniform(-2.0, 18.0), rng.uniform(-10.0, 10.0), 0.0)
        X_WH = _looking_at(centre, -into, rng, frontal=frontal)
        if apart and not away:
            X_WH = pin.SE3(looking((0.3, -1.0, -0.2)), np.array([0.1, -0.4, 0.9]))
        for at in (t + _MOVE_S, t + _STATION_S):
            body.append((at, (x, y, yaw)))
            torso.append((at, lean))
            hand.append((at, X_WH))
        t += _STATION_S
    walk = perform(Script(seconds=t, body=body, torso=torso), rng)
    return _take(ANCHOR, held_by_hand(walk, hand), X_WB=X_WB)


def lean_take(rng: np.random.Generator) -> Take:
    """Lean to and fro and to both sides, and turn, with the feet still."""
    torso = [(0.0, (0.0, 0.0, 0.0))]
    for angles in (
        (26.0, 0.0, 0.0),
        (-6.0, 0.0, 0.0),
        (8.0, 20.0, 0.0),
        (8.0, -20.0, 0.0),
        (4.0, 0.0, 35.0),
        (4.0, 0.0, -35.0),
        (0.0, 0.0, 0.0),
    ):
        torso.append((torso[-1][0] + 1.7, angles))
    script = Script(seconds=torso[-1][0] + 0.8, body=[(0.0, (-0.3, 0.1, 0.2))], torso=torso)
    return _take(LEAN, perform(script, rng))


def walk_take(rng: np.random.Generator, *, metres: float, speed: float = 0.55) -> Take:
    """Walk `metres` out along bends and back, with a reach and a grip at the far end and one at home."""
    legs = max(1, round(metres / 2.0 / 2.5))
    heading, corners = rng.uniform(-0.6, 0.6) + np.pi, [np.array([-0.3, 0.1])]
    for _ in range(legs):
        step = metres / 2.0 / legs
        corners.append(corners[-1] + step * np.array([np.cos(heading), np.sin(heading)]))
        heading += rng.uniform(-1.0, 1.0)
    t, yaw = 0.0, 0.2
    body: list[Key] = []
    torso: list[Key] = []
    hand: list[Key] = []
    grips: list[tuple[float, float]] = []

    def stay(seconds: float) -> None:
        nonlocal t
        body.append((t, (*here, yaw)))
        t += seconds
        body.append((t, (*here, yaw)))

    here = corners[0]
    stay(0.6)
    for target in [*corners[1:], *corners[-2::-1]]:
        leg = target - here
        wanted = float(np.arctan2(leg[1], leg[0]))
        turn = (wanted - yaw + np.pi) % (2 * np.pi) - np.pi
        yaw += turn
        t += abs(turn) / 1.0
        body.append((t, (*here, yaw)))
        t += float(np.linalg.norm(leg)) / speed
        here = target
        body.append((t, (*here, yaw)))
        if target is corners[-1] or target is corners[0]:
            _reach(t, torso, hand, grips, rng)
            stay(3.6)
    width = [(0.0, (0.08,))]
    for k, (begin, _) in enumerate(grips):
        width += [
            (begin + 0.6, (0.08 if k % 2 == 0 else 0.05,)),
            (begin + 1.0, (0.05 if k % 2 == 0 else 0.08,)),
        ]
    script = Script(seconds=t + 0.4, body=body, torso=torso, hand=hand, grips=grips, width=width)
    things = {
        "far": np.array([[*corners[-1], 0.8]]) + np.array([[0.5, 0.0, 0.0]]),
        "home": np.array([[0.2, 0.2, 0.8]]),
    }
    return _take(DEMONSTRATION, perform(script, rng), things=things)


def _reach(
    t: float,
    torso: list[Key],
    hand: list[Key],
    grips: list[tuple[float, float]],
    rng: np.random.Generator,
) -> None:
    """Lean and reach down in front, grip for a second, and return."""
    near, far = (0.40, -0.12, 0.12), (0.62, rng.uniform(-0.2, 0.1), rng.uniform(-0.18, -0.08))
    turn = rng.normal(size=3) * np.array([0.1, 0.1, 0.25])
    for at, lean, p, angles in (
        (t, 0.0, near, np.zeros(3)),
        (t + 1.0, rng.uniform(10.0, 20.0), far, turn),
        (t + 2.6, rng.uniform(10.0, 20.0), far, turn),
        (t + 3.6, 0.0, near, np.zeros(3)),
    ):
        torso.append((at, (lean, 0.0, 0.0)))
        hand.append((at, (*p, *angles)))
    grips.append((t + 1.0, t + 2.6))


def _looking_at(
    centre: np.ndarray, outwards: np.ndarray, rng: np.random.Generator, *, frontal: bool
) -> pin.SE3:
    """A pose of the wrist camera 0.36 to 0.5 m from the board, tilted by 25 to 45 degrees, from any side."""
    tilt = np.deg2rad(rng.uniform(0.0, 3.0) if frontal else rng.uniform(25.0, 45.0))
    side = rng.uniform(0.5 * np.pi, 1.5 * np.pi)
    right = np.cross(outwards, [0.0, 1.0, 0.0])
    right /= np.linalg.norm(right)
    across = np.cos(side) * right + np.sin(side) * np.cross(outwards, right)
    view = np.cos(tilt) * outwards + np.sin(tilt) * across
    aim = centre + np.append(rng.uniform(-0.03, 0.03, 2), 0.0)
    return pin.SE3(looking(-view, (1.0, 0.2 * rng.normal(), 0.1)), aim + rng.uniform(0.36, 0.5) * view)


def _take(kind: str, walk: Walk, **more: object) -> Take:
    return Take(kind=kind, X_WC=walk.X_WC, X_WE=walk.X_WE, x_WG=walk.x_WG, width=walk.width, **more)  # type: ignore[arg-type]


def _rng(seed: int, what: str, number: int) -> np.random.Generator:
    return np.random.default_rng([seed, _ORDER[what], number])
