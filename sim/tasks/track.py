"""`track`: keep the end effector on a target whose velocity jumps unpredictably.

The target moves in straight lines at constant speed. A segment lasts MIN_SEGMENT_S plus an exponentially
distributed time, so its end does not depend on how long it has lasted (only MAX_SEGMENT_S cuts it off,
one in four or five). Then direction and speed are drawn, uniform and independent of the past, repeatedly
until the segment stays in the region. So a target that heads for the border will turn before it, and one in
a corner will leave it; nothing else is predictable.

Speed and tolerance are chosen so that a planner with observations 400 ms late still succeeds, and one that
holds the robot while it computes does not.
"""

from dataclasses import dataclass

import mujoco
import numpy as np
import pinocchio as pin
from jaxtyping import Float

from robot_runtime.core.values.action import Command
from robot_runtime.core.values.schema import Schema
from sim.episodes.reactions import Reactions
from sim.scene.kinematics import Q_HOME, R_DOWN
from sim.scene.task import EpisodeScore, Scorer, point, robot_schema
from sim.scene.world import World
from sim.tasks.segments import Segments

WIDTH = 0.02
"""Distance between the fingers throughout [m]."""
REGION_MIN, REGION_MAX = np.array([0.36, -0.26, 0.18]), np.array([0.62, 0.26, 0.46])
"""Box for the target in B [m]: large enough for the longest segment at the lowest speed, from anywhere."""
SPEED_MIN, SPEED_MAX = 0.05, 0.14
MIN_SEGMENT_S, MEAN_EXTRA_S, MAX_SEGMENT_S = 1.0, 2.0, 4.0
APPROACH_S = 2.0
"""Time to reach the target before errors count [s]."""
TOLERANCE_M = 0.050
SHARE_REQUIRED = 0.50
_NUM_CANDIDATES = 256


@dataclass(frozen=True, kw_only=True, eq=False)
class Segment:
    """The target from `t_ns` (counted from the start of the episode) to the next segment."""

    t_ns: int
    end_ns: int
    p_BT: Float[np.ndarray, "3"]
    """Position at `t_ns` [m]."""
    v_BT: Float[np.ndarray, "3"]
    """Velocity [m/s]."""

    def position(self, t_ns: int) -> Float[np.ndarray, "3"]:
        """Target T in B at a time of the episode [m]."""
        return self.p_BT + self.v_BT * ((t_ns - self.t_ns) / 1e9)


def draw_segment(t_ns: int, p_BT: Float[np.ndarray, "3"], rng: np.random.Generator) -> Segment:
    """Draw a segment that starts at `p_BT`, stays in the region, and depends on nothing else."""
    duration_s = min(MIN_SEGMENT_S + rng.exponential(MEAN_EXTRA_S), MAX_SEGMENT_S)
    velocities = rng.standard_normal((_NUM_CANDIDATES, 3))
    speeds = rng.uniform(SPEED_MIN, SPEED_MAX, (_NUM_CANDIDATES, 1))
    velocities *= speeds / np.linalg.norm(velocities, axis=1, keepdims=True)
    ends = p_BT + velocities * duration_s
    inside = ((ends >= REGION_MIN) & (ends <= REGION_MAX)).all(axis=1)
    if inside.any():
        velocity = velocities[int(np.argmax(inside))]
    else:
        away = np.where(p_BT < (REGION_MIN + REGION_MAX) / 2, REGION_MAX, REGION_MIN) - p_BT
        velocity = away * (SPEED_MIN / np.linalg.norm(away))
    return Segment(t_ns=t_ns, end_ns=t_ns + int(1e9 * duration_s), p_BT=p_BT, v_BT=velocity)


class Track:
    """The task of following a sphere that changes its velocity at random."""

    name = "track"
    instruction = "follow the moving sphere with the hand"
    observation_noise, workspace_height = None, 0.0
    schema: Schema = robot_schema((*point("target"), "target.vx", "target.vy", "target.vz"))
    episode_s = 10.0

    def __init__(self) -> None:
        self._begin((REGION_MIN + REGION_MAX) / 2, np.random.default_rng(0))

    def _begin(self, p_BT: Float[np.ndarray, "3"], rng: np.random.Generator) -> None:
        self.segments = Segments(
            draw_segment(0, p_BT, rng),
            lambda last: draw_segment(last.end_ns, last.position(last.end_ns), rng),
        )

    def add_objects(self, spec: mujoco.MjSpec) -> None:
        target = spec.worldbody.add_body(name="target", mocap=True)
        target.add_geom(
            name="target",
            type=mujoco.mjtGeom.mjGEOM_SPHERE,
            size=[0.025, 0.0, 0.0],
            contype=0,
            conaffinity=0,
            rgba=[0.95, 0.35, 0.10, 1.0],
        )

    def reset(self, world: World, rng: np.random.Generator) -> None:
        p_BT, p_BE = rng.uniform(REGION_MIN, REGION_MAX), rng.uniform(REGION_MIN, REGION_MAX)
        X_BE = pin.SE3(R_DOWN, p_BT + 0.5 * (p_BE - p_BT))
        world.place_robot(world.kinematics.solve(X_BE, np.array(Q_HOME)), WIDTH)
        self._begin(p_BT, rng)

    def change_times_ns(self, until_ns: int) -> list[int]:
        """Times of velocity changes up to and including `until_ns`, from the start of the episode."""
        return self.segments.change_times_ns(until_ns)

    def update(self, world: World) -> None:
        t_ns = world.t_ns - world.t_start_ns
        world.data.mocap_pos[0] = self.segments.at(t_ns).position(t_ns)

    def apply_event(self, world: World) -> None:
        """Do nothing: the target has no contacts."""

    def environment_state(self, world: World) -> Float[np.ndarray, "6"]:
        """Position (3) [m] and velocity (3) [m/s] of the target in B."""
        t_ns = world.t_ns - world.t_start_ns
        segment = self.segments.at(t_ns)
        return np.concatenate([segment.position(t_ns), segment.v_BT])

    def make_scorer(self, world: World) -> Scorer:
        return TrackScorer(self, t_start_ns=world.t_start_ns)


class TrackScorer:
    """Success: E within TOLERANCE_M of the target for SHARE_REQUIRED of the time after the approach."""

    is_done = False

    def __init__(self, task: Track, *, t_start_ns: int) -> None:
        self._task, self._t_start_ns = task, t_start_ns
        self._errors: list[float] = []
        self.reactions = Reactions(task.change_times_ns, t_start_ns=t_start_ns)

    def on_tick(self, t_ns: int, world: World, command: Command, t_obs_ns: int | None) -> None:
        if t_ns - self._t_start_ns >= APPROACH_S * 1e9:
            p_BE = world.kinematics.forward(world.q).translation
            p_BT = self._task.environment_state(world)[:3]
            self._errors.append(float(np.linalg.norm(p_BE - p_BT)))
        self.reactions.on_tick(t_ns, t_obs_ns)

    def score(self) -> EpisodeScore:
        errors = np.array(self._errors or [np.inf])
        share = float((errors <= TOLERANCE_M).mean())
        metrics = {
            "share_on_target": share,
            "error_mean_m": float(errors.mean()),
            "error_p95_m": float(np.quantile(errors, 0.95)) if self._errors else np.inf,
        }
        return EpisodeScore(
            success=share >= SHARE_REQUIRED,
            completion_s=None,
            metrics=metrics | self.reactions.metrics(),
            reactions_s=self.reactions.times_s,
        )
