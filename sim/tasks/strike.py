"""`strike`: hit a ball back over the net after an unpredictable bounce.

    z
    |                  .  -  .                        o  comes in, spin-free
    |     E         .           .                  .
    |     #  <- -  -  after       .           .       before
    |     #                         .       .
    |     #            |net          .   .
    B-----+------------+--------------*----------------- x
         HIT_X       NET_X        bounce

The bounce is random: at the moment the ball reaches the table it gets a velocity that was drawn independently
of how it came in. Flight time to the plane x = HIT_X and the point there are uniform over a window, so the
flight before tells where and when the ball bounces and nothing of what follows. All the rest is MuJoCo's:
flight, paddle, net and table.

The ball is light, like a balloon: nine tenths of its weight are compensated, so that an arm within an FR3's
limits has 0.55 to 0.9 s from bounce to strike, and a rebound clears the net without a lob. A late observation
costs most of that time: moving to the edge of the window takes about 0.5 s.
"""

from dataclasses import dataclass

import mujoco
import numpy as np
import pinocchio as pin
from jaxtyping import Float

from robot_runtime.core.values.action import Command
from robot_runtime.core.values.schema import Schema
from sim.episodes.reactions import Reactions
from sim.scene.kinematics import P_HAND_E, Q_HOME, R_DOWN
from sim.scene.model import CONTACT, DT_NS, ROBOT, SCENE
from sim.scene.task import EpisodeScore, Scorer, point, robot_schema
from sim.scene.world import World

WIDTH = 0.02
"""Distance between the fingers, which hold the paddle's grip [m]."""
BALL_RADIUS, BALL_MASS, BALL_GRAVCOMP = 0.02, 0.02, 0.9
BALL_GRAVITY = 9.81 * (1.0 - BALL_GRAVCOMP)
"""Effective gravity of the ball [m/s²]."""
PADDLE_RADIUS, PADDLE_HALF_THICKNESS = 0.075, 0.006
P_EP = np.array([0.0, 0.0, 0.085])
"""Centre of the blade P in E [m]: below a hand that points down."""
LOFT = 0.15
"""Lean of the blade, face up [rad]."""
HIT_X = 0.42
"""Plane in which to meet the ball [m]."""
HIT_MIN, HIT_MAX = np.array([-0.26, 0.12]), np.array([0.26, 0.28])
"""Window (y, z) of the ball in that plane [m]."""
FLIGHT_S = (0.55, 0.90)
"""Time from the bounce to that plane [s]."""
BOUNCE_MIN, BOUNCE_MAX = np.array([0.84, -0.12]), np.array([0.95, 0.12])
INCOMING_S = (0.4, 0.8)
"""Time from the start of the episode to the bounce [s]."""
INCOMING_MIN, INCOMING_MAX = np.array([-0.80, -0.15, -0.75]), np.array([-0.45, 0.15, -0.60])
"""Velocity of the ball just before the bounce [m/s]."""
HAND_MIN, HAND_MAX = np.array([0.33, -0.08, 0.24]), np.array([0.39, 0.08, 0.32])
NET_X, NET_HEIGHT, NET_HALF_WIDTH = 0.70, 0.05, 0.45
_CONTACT_S = 0.020


@dataclass(frozen=True, kw_only=True, eq=False)
class Serve:
    """The random draws of an episode; times are relative to its start."""

    bounce_ns: int
    p_BO: Float[np.ndarray, "3"]
    """Position of the ball at the bounce [m]."""
    v_before: Float[np.ndarray, "3"]
    v_after: Float[np.ndarray, "3"]
    """Velocity just before and just after it [m/s]."""

    def start(self) -> tuple[Float[np.ndarray, "3"], Float[np.ndarray, "3"]]:
        """Position and velocity at the start of the episode, by inverting the integrator's steps."""
        n, h = self.bounce_ns // DT_NS, DT_NS / 1e9
        a = np.array([0.0, 0.0, -BALL_GRAVITY])
        return self.p_BO - h * n * self.v_before + h * h * n * (n - 1) / 2 * a, self.v_before - n * h * a


def draw_serve(rng: np.random.Generator) -> Serve:
    """Draw a serve; the flight after the bounce is independent of the flight before."""
    bounce_ns = int(rng.uniform(*INCOMING_S) * 1e9) // DT_NS * DT_NS
    p_BO = np.array([*rng.uniform(BOUNCE_MIN, BOUNCE_MAX), BALL_RADIUS + 0.001])
    v_before = rng.uniform(INCOMING_MIN, INCOMING_MAX)
    flight_s, hit = rng.uniform(*FLIGHT_S), rng.uniform(HIT_MIN, HIT_MAX)
    v_after = (np.array([HIT_X, *hit]) - p_BO) / flight_s
    v_after[2] += BALL_GRAVITY * flight_s / 2
    return Serve(bounce_ns=bounce_ns, p_BO=p_BO, v_before=v_before, v_after=v_after)


class Strike:
    """The task of a ball, a paddle and a net."""

    name = "strike"
    instruction = "hit the ball back over the net"
    observation_noise, workspace_height = None, 0.0
    schema: Schema = robot_schema((*point("ball"), "ball.vx", "ball.vy", "ball.vz"))
    episode_s = 3.0

    def __init__(self) -> None:
        self.serve = draw_serve(np.random.default_rng(0))

    def add_objects(self, spec: mujoco.MjSpec) -> None:
        ball = spec.worldbody.add_body(name="ball", pos=[1.0, 0.0, 0.3], gravcomp=BALL_GRAVCOMP)
        ball.add_freejoint(name="ball")
        ball.add_geom(
            name="ball",
            type=mujoco.mjtGeom.mjGEOM_SPHERE,
            size=[BALL_RADIUS, 0.0, 0.0],
            mass=BALL_MASS,
            condim=1,
            **CONTACT,
            rgba=[0.95, 0.45, 0.05, 1.0],
        )
        _add_paddle(spec.body("hand"))
        spec.worldbody.add_geom(
            name="net",
            type=mujoco.mjtGeom.mjGEOM_BOX,
            pos=[NET_X, 0.0, NET_HEIGHT / 2],
            size=[0.003, NET_HALF_WIDTH, NET_HEIGHT / 2],
            **CONTACT,
            rgba=[0.20, 0.30, 0.55, 1.0],
        )

    def reset(self, world: World, rng: np.random.Generator) -> None:
        X_BE = pin.SE3(R_DOWN, rng.uniform(HAND_MIN, HAND_MAX))
        world.place_robot(world.kinematics.solve(X_BE, np.array(Q_HOME)), WIDTH)
        self.serve = draw_serve(rng)
        ball = world.data.joint("ball")
        ball.qpos[:3], ball.qvel[:3] = self.serve.start()

    def update(self, world: World) -> None:
        """Do nothing: the ball moves by physics."""

    def apply_event(self, world: World) -> int | None:
        """Apply the random bounce, unless something has touched the ball before."""
        t_bounce_ns = world.t_start_ns + self.serve.bounce_ns
        if world.t_ns < t_bounce_ns:
            return t_bounce_ns
        ball = world.data.joint("ball")
        if np.abs(ball.qpos[:3] - self.serve.p_BO).max() < 1e-3:
            ball.qvel[:3] = self.serve.v_after
        return None

    def change_times_ns(self, until_ns: int) -> list[int]:
        """Time of the bounce, from the start of the episode, if it is not after `until_ns`."""
        return [self.serve.bounce_ns] if self.serve.bounce_ns <= until_ns else []

    def environment_state(self, world: World) -> Float[np.ndarray, "6"]:
        """Position (3) [m] and velocity (3) [m/s] of the ball in B."""
        ball = world.data.joint("ball")
        return np.concatenate([ball.qpos[:3], ball.qvel[:3]])

    def make_scorer(self, world: World) -> Scorer:
        return StrikeScorer(self, world)


def _add_paddle(hand: mujoco.MjsBody) -> None:
    """Add blade and grip; the blade is elastic and frictionless, and its properties take precedence."""
    cylinder = mujoco.mjtGeom.mjGEOM_CYLINDER
    lean = np.pi / 2 + LOFT
    blade = np.array(P_HAND_E) + P_EP
    hand.add_geom(
        name="paddle",
        type=cylinder,
        pos=blade,
        quat=[np.cos(lean / 2), 0.0, np.sin(lean / 2), 0.0],
        size=[PADDLE_RADIUS, PADDLE_HALF_THICKNESS, 0.0],
        mass=0.0,
        priority=1,
        condim=1,
        solref=[-((np.pi / _CONTACT_S) ** 2), -6.0],
        solimp=[0.99, 0.99, 0.001, 0.5, 2.0],
        contype=ROBOT,
        conaffinity=SCENE,
        rgba=[0.75, 0.12, 0.12, 1.0],
    )
    hand.add_geom(
        name="grip",
        type=mujoco.mjtGeom.mjGEOM_BOX,
        pos=[P_HAND_E[0], P_HAND_E[1], P_HAND_E[2] + 0.006],
        size=[0.008, WIDTH / 2, 0.016],
        mass=0.0,
        contype=0,
        conaffinity=0,
        rgba=[0.60, 0.42, 0.25, 1.0],
    )


class StrikeScorer:
    """Success: after the bounce the ball meets the paddle, and then nothing else, and passes over the net.

    Passing is crossing x = NET_X away from the robot with its whole body above the net and its centre within
    the net's width. A ball that touches the paddle before the bounce, or table, arm or net after the bounce
    and before it has passed, fails the episode.
    """

    def __init__(self, task: Strike, world: World) -> None:
        self._task, self._t_start_ns = task, world.t_start_ns
        self._ball, self._paddle = (world.model.geom(name).id for name in ("ball", "paddle"))
        self.struck_ns: int | None = None
        """Time at which the paddle met the ball [ns]."""
        self._passed_ns: int | None = None
        self._is_lost = False
        self._speed_after = 0.0
        self._offset_y = np.inf
        self._last_p: np.ndarray | None = None
        self.reactions = Reactions(task.change_times_ns, t_start_ns=world.t_start_ns)

    def on_tick(self, t_ns: int, world: World, command: Command, t_obs_ns: int | None) -> None:
        self.reactions.on_tick(t_ns, t_obs_ns)
        if self.is_done:
            return
        ball = self._task.environment_state(world)
        self._note_contacts(t_ns, world)
        if self._last_p is not None:
            self.note_crossing(t_ns, self._last_p, ball[:3])
        if self.struck_ns is None:
            p_BE = world.kinematics.forward(world.q).act(P_EP)
            if ball[0] >= p_BE[0]:
                self._offset_y = float(abs(ball[1] - p_BE[1]))
            self._is_lost |= ball[0] < HIT_X - 0.3
        else:
            self._speed_after = max(self._speed_after, float(ball[3]))
        self._last_p = ball[:3].copy()

    def _note_contacts(self, t_ns: int, world: World) -> None:
        has_bounced = t_ns - self._t_start_ns > self._task.serve.bounce_ns
        pairs = world.data.contact.geom
        for pair in pairs[(pairs == self._ball).any(axis=1)]:
            if self._paddle in pair and has_bounced:
                self.struck_ns = self.struck_ns or t_ns
            else:
                self._is_lost = True

    def note_crossing(self, t_ns: int, before: Float[np.ndarray, "3"], after: Float[np.ndarray, "3"]) -> None:
        """Process the ball's motion since the last tick, in case it crosses the net."""
        if self.struck_ns is None or self._is_lost or not before[0] < NET_X <= after[0]:
            return
        alpha = (NET_X - before[0]) / (after[0] - before[0])
        _, y, z = before + alpha * (after - before)
        if abs(y) <= NET_HALF_WIDTH and z >= NET_HEIGHT + BALL_RADIUS:
            self._passed_ns = t_ns
        else:
            self._is_lost = True

    @property
    def is_done(self) -> bool:
        return self._passed_ns is not None or self._is_lost

    def score(self) -> EpisodeScore:
        passed = self._passed_ns
        metrics = {
            "was_struck": float(self.struck_ns is not None),
            "offset_y_m": self._offset_y if np.isfinite(self._offset_y) else 0.0,
            "ball_speed_after_m_s": self._speed_after,
        }
        return EpisodeScore(
            success=passed is not None,
            completion_s=None if passed is None else (passed - self._t_start_ns) / 1e9,
            metrics=metrics | self.reactions.metrics(),
            reactions_s=self.reactions.times_s,
        )
