"""Clips that calibrate a session: both cameras view the board, both are shaken together, the spine leans.

    anchor   chest camera from several poses around the board, then the wrist camera; still at each
    sync     the gripper pressed to the chest, both turned to and fro: their gyroscopes agree
    lean     feet still, the spine forwards and to the sides: it turns about the hips
    walk     from where a clip ended to where the next one begins

Each clip is a path of the torso and, on it, the gripper; nothing is touched, so there is no physics.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import pinocchio as pin
from jaxtyping import Float

from robot_runtime.core.values.transforms import wrap_angle
from robot_runtime.robot.joint_move import min_jerk
from sim.capture.body import Posture
from sim.capture.performance import PERIOD_NS, Kind, Performance, PerformanceRecorder
from sim.capture.person import Person, perform, person_of
from sim.capture.scene import BOARD, X_HE, PersonScene, optical
from sim.tasks import make_task

BOARD_HEIGHT = 0.74
STATIONS = 8
_MOVE_S, _HOLD_S = 0.9, 0.7
_X_TE_CARRY = pin.SE3(pin.utils.rotate("y", math.pi), np.array([0.30, -0.28, 0.08]))
"""Gripper beside the body, out of the chest camera's view of the board."""
_X_TE_PRESSED = pin.SE3(pin.utils.rotate("y", math.pi), np.array([0.20, -0.06, 0.24]))


@dataclass(frozen=True, kw_only=True, eq=False)
class Stance:
    """Pose of the torso as numbers, and of the gripper on it."""

    x: float
    y: float
    yaw: float
    """Hips on the floor and yaw of the chest [m, m, rad]."""
    up: float
    """Height of the hips over the floor [m]."""
    pitch: float = 0.05
    roll: float = 0.0
    X_TE: pin.SE3 = _X_TE_CARRY

    @property
    def X_WT(self) -> pin.SE3:
        """Pose of the torso."""
        turn = pin.utils.rotate
        R = turn("z", self.yaw) @ turn("y", self.pitch) @ turn("x", self.roll)
        return pin.SE3(R, np.array([self.x, self.y, self.up]))

    def holding(self, X_WE: pin.SE3) -> "Stance":
        """The same stance with the gripper at a pose in the world."""
        return Stance(**{**self.__dict__, "X_TE": self.X_WT.inverse() * X_WE})


def anchor_clip(
    scene: PersonScene,
    person: Person,
    seed: int,
    *,
    x: Sequence[float],
    board: pin.SE3 | None = None,
    stations: int = STATIONS,
    film: bool = False,
) -> Performance:
    """View the board with the chest camera, then with the wrist camera.

    x: hips and chest in front of it (x, y, yaw). board: its pose; None: flat, in front of x.
    stations: number of poses of either camera.
    """
    rng = np.random.default_rng([seed, 0xA9C])
    board = board_before(x) if board is None else board
    middle = board.act(BOARD.centre_B)
    at = Stance(x=x[0], y=x[1], yaw=x[2], up=person.build.hips_height)
    stances = [at]
    for i in range(stations):
        angle = at.yaw + np.pi + 0.55 * math.cos(2.4 * i) + rng.uniform(-0.1, 0.1)
        far = 0.58 + 0.10 * math.sin(1.7 * i) + rng.uniform(-0.03, 0.03)
        p = middle[:2] + far * np.array([math.cos(angle), math.sin(angle)])
        stances.append(
            Stance(
                x=p[0],
                y=p[1],
                yaw=math.atan2(middle[1] - p[1], middle[0] - p[0]) + rng.uniform(-0.08, 0.08),
                up=at.up,
                pitch=0.04 + rng.uniform(0.0, 0.25),
                roll=rng.uniform(-0.08, 0.08),
            )
        )
    stances.append(at)
    away = (math.cos(at.yaw), math.sin(at.yaw), 0.0)
    for i in range(stations):
        tilt, azimuth = math.radians(rng.uniform(24.0, 44.0)), at.yaw + np.pi + 1.3 * math.cos(2.4 * i)
        off = np.array(
            [math.sin(tilt) * math.cos(azimuth), math.sin(tilt) * math.sin(azimuth), math.cos(tilt)]
        )
        p = middle + rng.uniform(0.33, 0.43) * off
        target = middle + 0.03 * rng.standard_normal(3)
        stances.append(at.holding(optical(tuple(p), tuple(target), up=away) * X_HE))
    stances.append(at)
    moves = len(stances) - 1
    return _record(
        scene,
        person,
        seed,
        kind="anchor",
        duration_s=moves * (_MOVE_S + _HOLD_S),
        stance=lambda t: _between_stances(stances, t),
        board=board,
        film=film,
    )


def board_before(x: Sequence[float] | np.ndarray) -> pin.SE3:
    """Pose of a board flat in front of a person: z down into it, its first corner far and to the left."""
    R = pin.utils.rotate("z", float(x[2]) - np.pi / 2) @ np.diag([1.0, -1.0, -1.0])
    middle = np.array([x[0] + 0.58 * math.cos(x[2]), x[1] + 0.58 * math.sin(x[2]), BOARD_HEIGHT])
    return pin.SE3(R, middle - R @ BOARD.centre_B)


def sync_clip(
    scene: PersonScene, person: Person, seed: int, *, x: Sequence[float], film: bool = False
) -> Performance:
    """Press the gripper to the chest and turn to and fro for 8 seconds."""
    rng = np.random.default_rng([seed, 0x5C])
    phase = rng.uniform(0.0, 2 * np.pi, size=6)
    at = Stance(x=x[0], y=x[1], yaw=x[2], up=person.build.hips_height)
    pressed = Stance(**{**at.__dict__, "X_TE": _X_TE_PRESSED})

    def stance(t: float) -> Stance:
        if t < 1.0:
            return _mix(at, pressed, min_jerk(t))
        if t > 9.0:
            return _mix(pressed, at, min_jerk(t - 9.0))
        swell = math.sin(math.pi * (t - 1.0) / 8.0) ** 0.5 * _between(t, 1.0, 9.0)
        w = 2 * np.pi * np.array([0.83, 1.31, 0.71, 1.17, 0.97, 0.59])
        s = np.sin(w * t + phase)
        turned = (0.22 * s[0] + 0.10 * s[1], 0.10 * s[2] + 0.05 * s[3], 0.08 * s[4] + 0.05 * s[5])
        return Stance(
            x=at.x,
            y=at.y,
            yaw=at.yaw + swell * turned[0],
            up=at.up,
            pitch=at.pitch + swell * turned[1],
            roll=at.roll + swell * turned[2],
            X_TE=_X_TE_PRESSED,
        )

    return _record(scene, person, seed, kind="sync", duration_s=10.0, stance=stance, film=film)


def lean_clip(
    scene: PersonScene, person: Person, seed: int, *, x: Sequence[float], film: bool = False
) -> Performance:
    """Stand still and lean: forwards three times, to the sides twice; then turn to the sides.

    Leaning reveals the camera's height over the hips and its distance before them; turning, its offset aside.
    """
    rng = np.random.default_rng([seed, 0x1EA])
    at = Stance(x=x[0], y=x[1], yaw=x[2], up=person.build.hips_height)
    pitch, roll = rng.uniform(0.38, 0.46), rng.uniform(0.26, 0.32)

    def stance(t: float) -> Stance:
        forwards = math.sin(math.pi * t / 2.2) ** 2 if t < 6.6 else 0.0
        sideways = math.sin(2 * math.pi * (t - 6.6) / 2.4) * _between(t, 6.6, 11.4)
        turning = math.sin(2 * math.pi * (t - 11.4) / 3.0) * _between(t, 11.4, 17.4)
        return Stance(
            x=at.x,
            y=at.y,
            yaw=at.yaw + (0.5 * turning if t > 11.4 else 0.0),
            up=at.up,
            pitch=at.pitch + (pitch - at.pitch) * forwards,
            roll=roll * sideways if 6.6 < t < 11.4 else 0.0,
        )

    return _record(scene, person, seed, kind="lean", duration_s=17.4, stance=stance, film=film)


def walk_between(
    scene: PersonScene, person: Person, before: Performance, after: Performance, *, film: bool = False
) -> Performance:
    """Walk from the end of a clip to the start of the next one, turning meanwhile."""
    X_CT = person.X_TC.inverse()
    ends = [(clip.X_WC[i] * X_CT, clip.X_WE[i], clip.x_WG[i]) for clip, i in ((before, -1), (after, 0))]
    last = [before.X_WC[-2] * X_CT, before.X_WE[-2]]
    dt = float(before.t_ns[-1] - before.t_ns[-2]) / 1e9
    (X_WT_a, X_WE_a, x_a), (X_WT_b, X_WE_b, x_b) = ends
    walked, turned = np.linalg.norm(x_b[:2] - x_a[:2]), abs(wrap_angle(float(x_b[2] - x_a[2])))
    duration = 1.6 + 1.875 * max(float(walked) / 0.9, float(turned) / 1.6)
    twist = pin.log6(last[0].inverse() * X_WT_a).vector / dt
    X_TE_a, X_TE_b = X_WT_a.inverse() * X_WE_a, X_WT_b.inverse() * X_WE_b
    twist_hand = pin.log6((last[0].inverse() * last[1]).inverse() * X_TE_a).vector / dt
    steps = max(1, round(duration * 1.8))
    build = person.build

    def torso(t: float) -> tuple[pin.SE3, pin.SE3]:
        s, drift = min_jerk(t / duration), 0.2 * (1.0 - math.exp(-t / 0.2))
        X_WT = _mix_poses(X_WT_a * pin.exp6(drift * twist), X_WT_b, s)
        X_TE = _mix_poses(X_TE_a * pin.exp6(drift * twist_hand), X_TE_b, s)
        amount = min(1.0, float(walked) / 0.5) * math.sin(math.pi * min(1.0, t / duration)) ** 2
        beat = math.pi * steps * t / duration
        gait = np.array([0.0, build.sway * math.sin(beat), build.bob * math.sin(2 * beat)])
        pitch = pin.utils.rotate("y", build.pitch * amount * math.sin(2 * beat + 0.6))
        return pin.SE3(X_WT.rotation @ pitch, X_WT.translation + amount * (X_WT.rotation @ gait)), X_TE

    recorder = PerformanceRecorder(scene, person.X_TC, None, film=film)
    for i in range(math.ceil(duration * 1e9 / PERIOD_NS) - 1):  # the ends are the neighbours' own
        t = (i + 1) * PERIOD_NS / 1e9
        X_WT, X_TE = torso(t)
        s = min_jerk(t / duration)
        x = x_a + s * np.array([*(x_b - x_a)[:2], wrap_angle(float(x_b[2] - x_a[2]))])
        walking = min(1.0, 4 * s * (1 - s))
        posture = Posture(X_WT=X_WT, x_WG=x, phase=math.pi * steps * t / duration, walking=walking)
        width = (1 - s) * before.width[-1] + s * after.width[0]
        recorder.on_pose(i * PERIOD_NS, posture, X_WT * X_TE, float(width))
    return recorder.performance(kind="walk", words="", seed=before.seed, success=True)


def _between_stances(stances: Sequence[Stance], t: float) -> Stance:
    """The stance at a time: move, hold, move, hold."""
    i = min(int(t // (_MOVE_S + _HOLD_S)), len(stances) - 2)
    into = t - i * (_MOVE_S + _HOLD_S)
    return _mix(stances[i], stances[i + 1], min_jerk(into / _MOVE_S))


def _between(t: float, begin_s: float, end_s: float) -> float:
    """1 between the two and 0 outside, with ramps of half a second."""
    return min_jerk((t - begin_s) / 0.5) * min_jerk((end_s - t) / 0.5)


def _mix(a: Stance, b: Stance, s: float) -> Stance:
    names = ("x", "y", "up", "pitch", "roll")
    numbers = {name: (1 - s) * getattr(a, name) + s * getattr(b, name) for name in names}
    yaw = a.yaw + s * wrap_angle(b.yaw - a.yaw)
    return Stance(yaw=yaw, X_TE=_mix_poses(a.X_TE, b.X_TE, s), **numbers)


def _mix_poses(a: pin.SE3, b: pin.SE3, s: float) -> pin.SE3:
    R = a.rotation @ pin.exp3(s * pin.log3(a.rotation.T @ b.rotation))
    return pin.SE3(R, (1 - s) * a.translation + s * b.translation)


def _record(
    scene: PersonScene,
    person: Person,
    seed: int,
    *,
    kind: Kind,
    duration_s: float,
    stance: Callable[[float], Stance],
    film: bool,
    board: pin.SE3 | None = None,
) -> Performance:
    """Record the clip of a stance over time, with a slight tremor."""
    tremor = _Tremor(np.random.default_rng([seed, 0x7E]))
    recorder = PerformanceRecorder(scene, person.X_TC, None, film=film, board=board)
    for i in range(math.ceil(duration_s * 1e9 / PERIOD_NS) + 1):
        t = i * PERIOD_NS / 1e9
        now = stance(t)
        share = _between(t, 0.0, duration_s)
        X_WT = now.X_WT * tremor.at(t, 0, share)
        X_TE = now.X_TE if kind == "sync" else now.X_TE * tremor.at(t, 1, share)
        posture = Posture(X_WT=X_WT, x_WG=np.array([now.x, now.y, now.yaw]), phase=0.0, walking=0.0)
        recorder.on_pose(i * PERIOD_NS, posture, X_WT * X_TE, 0.04)
    return recorder.performance(kind=kind, words="", seed=seed, success=True)


class _Tremor:
    """Slow tremor of about a millimetre and a tenth of a degree."""

    def __init__(self, rng: np.random.Generator) -> None:
        self._w = 2 * np.pi * rng.uniform(0.15, 0.9, size=(2, 6, 2))
        self._phase = rng.uniform(0.0, 2 * np.pi, size=(2, 6, 2))

    def at(self, t: float, of: int, share: float) -> pin.SE3:
        """Displacement of the torso (of=0) or the gripper (of=1)."""
        s = np.sin(self._w[of] * t + self._phase[of]).sum(axis=1)
        size = np.array([8e-4] * 3 + [0.002] * 3) * (0.4 if of == 0 else 1.0)
        return pin.exp6(share * size * s)


class Demonstrate(Protocol):
    """`perform`, or a cache of it."""

    def __call__(self, task: str, seed: int, *, person: Person, film: bool) -> Performance: ...


def visit(
    task: str,
    seeds: Sequence[int],
    *,
    person: Person | None = None,
    anchor_every: int = 5,
    film: bool = False,
    demonstrate: Demonstrate = perform,
    on_demonstration: Callable[[Performance], None] = lambda performance: None,
) -> list[Performance]:
    """The clips of a session, in order; one demonstration for every seed, including failed ones.

    person: None: another one for every hundred seeds. anchor_every: view the board again after this many
    demonstrations. film: keep snapshots for images.
    demonstrate: what makes a demonstration. ValueError: no seeds.
    """
    if not len(seeds):
        raise ValueError("expected at least one demonstration in a session, got no seeds")
    person = person_of(seeds[0] // 100) if person is None else person
    scene = PersonScene(make_task(task), has_board=True)
    x = _start(scene, seeds)
    board = board_before(x)

    def anchor(i: int) -> Performance:
        return anchor_clip(scene, person, 1000 * seeds[0] + i, x=list(x), board=board, film=film)

    clips = [anchor(0), sync_clip(scene, person, seeds[0], x=list(x), film=film)]
    clips.append(lean_clip(scene, person, seeds[0], x=list(x), film=film))
    for i, seed in enumerate(seeds):
        if i and i % anchor_every == 0:
            clips.append(anchor(i))
        clips.append(demonstrate(task, seed, person=person, film=film))
        on_demonstration(clips[-1])
    clips.append(sync_clip(scene, person, seeds[0] + 1, x=list(x), film=film))
    clips.append(anchor(len(seeds)))
    return _joined(scene, person, clips, film=film)


def _start(scene: PersonScene, seeds: Sequence[int]) -> Float[np.ndarray, "3"]:
    """The person's pose during calibration (x, y, yaw)."""
    scene.reset(seeds[0])
    return scene.x_WB.copy()


def _joined(
    scene: PersonScene, person: Person, clips: Sequence[Performance], *, film: bool
) -> list[Performance]:
    out = [clips[0]]
    for after in clips[1:]:
        if _differ(out[-1].X_WC[-1], after.X_WC[0]) or _differ(out[-1].X_WE[-1], after.X_WE[0]):
            out.append(walk_between(scene, person, out[-1], after, film=film))
        out.append(after)
    return out


def _differ(a: pin.SE3, b: pin.SE3) -> bool:
    return bool(np.linalg.norm(pin.log6(a.inverse() * b).vector) > 1e-6)
