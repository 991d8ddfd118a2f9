"""A simulated person who demonstrates a household task with a hand-held gripper: `perform`.

The person pursues the intentions of the task's expert, but starts elsewhere, at an individual pace, on a path
that is not quite straight and has occasional detours; the chest leans, sways and turns (`sim.capture.body`).
Manipulation is physics: a cup that slips is dropped.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from typing import Protocol

import numpy as np
import pinocchio as pin
from jaxtyping import Float

from robot_runtime.core.values.action import Command
from robot_runtime.core.values.transforms import compose_planar, turn_planar, wrap_angle
from robot_runtime.errors import UnknownNameError
from sim.capture.body import BodyMotion, Build
from sim.capture.performance import Performance, PerformanceRecorder
from sim.capture.scene import HAND_LAG_S, PersonScene, chest_camera
from sim.experts.clear import ClearExpert
from sim.experts.drawer import DrawerExpert
from sim.experts.fetch import FetchExpert
from sim.experts.handling import READY
from sim.experts.mobile import (
    DRIVE_ACCELERATION,
    HAND_ACCELERATION,
    TURN_ACCELERATION,
    Errand,
    MobileScene,
)
from sim.experts.motion import limit, limit_norm
from sim.experts.wipe import WipeExpert
from sim.scene.kinematics import R_DOWN
from sim.scene.model import DT_NS
from sim.scene.task import EpisodeScore
from sim.tasks import make_task
from sim.tasks.household import TABLE_Z


class _ErrandExpert(Protocol):
    """An expert that gives the current errand for a scene."""

    def errand(self, seen: Float[np.ndarray, " K"]) -> Errand: ...


ERRANDS: dict[str, Callable[[], _ErrandExpert]] = {
    "clear": ClearExpert,
    "drawer": DrawerExpert,
    "fetch": FetchExpert,
    "wipe": WipeExpert,
}
_NOTHING = Command()
DECIDE_NS = 20_000_000
"""Period of the person's decisions [ns]."""
LEASH = 0.025
"""How far the target may run ahead of a gripper that is blocked [m]."""
AFTER_S = 0.6
"""How long the demonstration continues after success [s]."""
_STEPS = DECIDE_NS // DT_NS
_DT_S = DECIDE_NS / 1e9


@dataclass(frozen=True, kw_only=True)
class Person:
    """Body, pace and chest camera of a demonstrator."""

    build: Build = field(default_factory=Build)
    pace: float = 1.0
    """Factor on all speeds; 1 is the expert's."""
    unsteady: float = 0.35
    """Size of detours; 1: about 0.1 m every few seconds."""
    p_TC: tuple[float, float, float] = (0.15, 0.0, 0.40)
    camera_down: float = 0.70
    """Position of the chest camera in T and its pitch down [m, rad]."""

    @property
    def X_TC(self) -> pin.SE3:
        """Pose of the chest camera on the torso."""
        return chest_camera(p_TC=self.p_TC, down=self.camera_down)


def person_of(seed: int) -> Person:
    """A person drawn from a seed."""
    rng = np.random.default_rng([seed, 0xB0D7])
    return Person(
        build=Build(
            hips_height=rng.uniform(0.88, 0.98),
            p_BP=(rng.uniform(0.13, 0.19), rng.uniform(-0.02, 0.02)),
            chest_turn=rng.uniform(-0.05, 0.05),
        ),
        pace=rng.uniform(0.85, 1.05),
        p_TC=(rng.uniform(0.13, 0.17), rng.uniform(-0.02, 0.02), rng.uniform(0.36, 0.42)),
        camera_down=rng.uniform(0.6, 0.8),
    )


def perform(task: str, seed: int, *, person: Person | None = None, film: bool = True) -> Performance:
    """Demonstrate a task in the rooms of a seed; the same seed, the same bits.

    task: one of the household tasks. person: None: another one for every hundred seeds.
    film: keep the snapshots that images are drawn from. UnknownNameError: another task.
    """
    if task not in ERRANDS:
        raise UnknownNameError("task", task, ERRANDS)
    person = person_of(seed // 100) if person is None else person
    scene = _scene(task)
    return _Demonstrating(scene, person, seed).play(film=film)


@cache
def _scene(task: str) -> PersonScene:
    return PersonScene(make_task(task))


class _Demonstrating:
    """One demonstration in progress."""

    def __init__(self, scene: PersonScene, person: Person, seed: int) -> None:
        self._scene, self._person, self._seed = scene, person, seed
        self._rng = np.random.default_rng([seed, 0xD0])
        scene.reset(seed)
        self._errand = ERRANDS[scene.task.name]()
        own = self._rng.uniform([-0.15, -0.15, -0.25], [0.15, 0.15, 0.25])
        self._x = compose_planar(scene.x_WB, own)
        self._v = np.zeros(3)
        self._p = READY + self._rng.uniform([-0.08, -0.08, -0.06], [0.06, 0.08, 0.06])
        self._v_hand = np.zeros(3)
        self._width = scene.gripper_width
        self._off = _Unsteadiness(person.unsteady, self._rng)
        scene.place_base(self._x)
        scene.place_hand(self._X_WE(np.zeros(3)), self._width)
        scene.step(self._x, np.zeros(3))

    def play(self, *, film: bool) -> Performance:
        scene, person = self._scene, self._person
        body = BodyMotion(person.build, self._rng, phase=self._rng.uniform(0.0, 2 * math.pi))
        recorder = PerformanceRecorder(scene, person.X_TC, body, film=film)
        scorer, left = scene.task.make_scorer(scene.as_world), AFTER_S
        while scene.t_ns < scene.task.episode_s * 1.3e9 and left > 0.0:
            self._decide()
            for _ in range(_STEPS):
                recorder.on_step(self._v)
                self._step()
            scorer.on_tick(scene.t_ns, scene.as_world, _NOTHING, None)
            scene.task.update(scene.as_world)
            left -= _DT_S if scorer.is_done else 0.0
        score: EpisodeScore = scorer.score()
        return recorder.performance(
            kind="demonstration", words=scene.task.instruction, seed=self._seed, success=score.success
        )

    def _decide(self) -> None:
        """Observe, intend, and change velocity towards that within what legs and arm can do."""
        scene, person, pace = self._scene, self._person, self._person.pace
        errand = self._errand.errand(scene.task.environment_state(scene.as_world))
        yaw = float(self._x[2])
        v_O = self._v.copy()
        v_O[:2] = turn_planar(self._v[:2], -yaw)
        seen = MobileScene(
            x=np.zeros(3),
            v=v_O,
            p=self._p,
            v_hand=self._v_hand,
            width=scene.gripper_width,
            things=errand.things,
            deck=errand.deck,
        )
        want = errand.intend(seen)
        low = self._p[2] < TABLE_Z + 0.10
        off_base, off_hand = self._off.velocities(self._v, self._v_hand, is_low=low)
        dv = pace * want.v + off_base - v_O
        dv[:2] = limit_norm(dv[:2], 1.3 * DRIVE_ACCELERATION * _DT_S)
        dv[2] = limit(dv[2], -1.3 * TURN_ACCELERATION * _DT_S, 1.3 * TURN_ACCELERATION * _DT_S)
        v_O = v_O + dv
        self._v = np.array([*turn_planar(v_O[:2], yaw), v_O[2]])
        dv_hand = pace * want.v_hand + off_hand - self._v_hand
        self._v_hand = self._v_hand + limit_norm(dv_hand, 1.3 * HAND_ACCELERATION * _DT_S)
        self._width = want.width
        self._tilt = self._off.tilt(person.unsteady * (0.25 if scene.task.name == "wipe" else 1.0))

    def _step(self) -> None:
        dt = DT_NS / 1e9
        self._x = self._x + dt * self._v
        self._x[2] = wrap_angle(self._x[2])
        self._p = self._p + dt * self._v_hand
        self._keep_on_leash()
        self._scene.lead_hand(self._X_WE(self._tilt), self._width)
        self._scene.step(self._x, self._v)

    def _keep_on_leash(self) -> None:
        """Bound how far the target runs ahead, so that a blocked gripper is not pushed ever harder."""
        E = self._scene.data.site("end_effector").xpos
        at = turn_planar(E - np.array([self._x[0], self._x[1], 0.0]), -float(self._x[2]))
        ahead = self._p - at
        moving = HAND_LAG_S * float(np.linalg.norm(self._v_hand) + np.linalg.norm(self._v[:2]))
        self._p = at + limit_norm(ahead, LEASH + 1.5 * moving)

    def _X_WE(self, tilt: Float[np.ndarray, "3"]) -> pin.SE3:
        """The gripper's target: pointing down, fingers opening along y of B, slightly tilted."""
        R = pin.utils.rotate("z", float(self._x[2])) @ R_DOWN @ pin.exp3(tilt)
        p = turn_planar(self._p, float(self._x[2])) + np.array([self._x[0], self._x[1], 0.0])
        return pin.SE3(R, p)


class _Unsteadiness:
    """Unintended motion of a person: small velocity errors, detours, a gripper not quite upright.

    Motion that is slow, or near something, is exact.
    """

    def __init__(self, amount: float, rng: np.random.Generator) -> None:
        self._amount, self._rng = amount, rng
        self._base: np.ndarray = np.zeros(3)
        self._hand: np.ndarray = np.zeros(3)
        self._tilt: np.ndarray = np.zeros(3)
        self._tilt_v: np.ndarray = np.zeros(3)
        self._left, self._length = 0.0, 1.0
        self._detour_base: np.ndarray = np.zeros(3)
        self._detour_hand: np.ndarray = np.zeros(3)
        self._next = rng.exponential(2.5)

    def velocities(
        self, v: Float[np.ndarray, "3"], v_hand: Float[np.ndarray, "3"], *, is_low: bool
    ) -> tuple[Float[np.ndarray, "3"], Float[np.ndarray, "3"]]:
        """Additions to the intended velocities of base [m/s, rad/s] and hand [m/s] for the next decision."""
        rng = self._rng
        self._base = _drifted(self._base, np.array([0.05, 0.05, 0.08]), 0.6, rng)
        self._hand = _drifted(self._hand, np.full(3, 0.05), 0.3, rng)
        share_base = min(1.0, float(np.linalg.norm(v)) / 0.4)
        share_hand = min(1.0, (float(np.linalg.norm(v_hand)) + 0.02) / 0.35)
        base, hand = self._detour(is_low=is_low)
        out_base = self._amount * (share_base * self._base + base)
        out_hand = self._amount * (share_hand * self._hand + hand)
        if is_low:
            out_hand[2] = max(out_hand[2], 0.0)
        return out_base, out_hand

    def _detour(self, *, is_low: bool) -> tuple[Float[np.ndarray, "3"], Float[np.ndarray, "3"]]:
        """An occasional detour whose speed rises and falls."""
        self._next -= _DT_S
        if self._next <= 0.0:
            rng = self._rng
            self._next = 1.0 + rng.exponential(3.0)
            self._left = self._length = rng.uniform(0.5, 1.0)
            reach = 2.0 / self._length  # of the mean of sin², a half
            self._detour_base = reach * rng.uniform(0.0, 1.0) * _direction(rng) * [0.08, 0.08, 0.15]
            self._detour_hand = reach * rng.uniform(0.0, 0.06) * _direction(rng)
            if is_low:
                self._detour_base = self._detour_base * 0.4
                self._detour_hand = 0.5 * np.abs(self._detour_hand) * [0.3, 0.3, 1.0]
        if self._left <= 0.0:
            return np.zeros(3), np.zeros(3)
        self._left -= _DT_S
        share = math.sin(math.pi * max(0.0, self._left) / self._length) ** 2
        return share * self._detour_base, share * self._detour_hand

    def tilt(self, amount: float) -> Float[np.ndarray, "3"]:
        """The gripper's tilt, a rotation vector [rad]."""
        self._tilt_v += _DT_S * (-4.0 * self._tilt - 2.8 * self._tilt_v) + 0.14 * math.sqrt(
            _DT_S
        ) * self._rng.standard_normal(3)
        self._tilt = self._tilt + _DT_S * self._tilt_v
        return amount * self._tilt


def _drifted(x: np.ndarray, std: np.ndarray, time_s: float, rng: np.random.Generator) -> np.ndarray:
    keep = math.exp(-_DT_S / time_s)
    return keep * x + math.sqrt(1.0 - keep**2) * std * rng.standard_normal(len(x))


def _direction(rng: np.random.Generator) -> Float[np.ndarray, "3"]:
    v = rng.standard_normal(3)
    return v / np.linalg.norm(v)
