"""Measures how much of a base's motion reaches the end effector, and how soon a base without commands stops.

    python -m scripts.bench.moving_base --json scripts/results/bench-moving-base.json

The end effector must hold its pose in the world while the base drives a circle of 6 cm under it, at 1 m/s²
all the way round, with odometry that drifts and is 2 % off (random for each seed). Separate errors:

    with the arm       end effector from its pose, in odometry's world: what the arm could not compensate
    without            the same, had the arm been stationary: what the base adds
    odometry's         from its true pose: the error of the odometry

In simulated time, so the figures are the same on every machine.
"""

from dataclasses import dataclass
from typing import Annotated

import numpy as np

from robot_runtime.cli.options import Count, Maybe, OutputFile, Within
from robot_runtime.core.values.action import BasePoseCommand, BaseTwistCommand, Command, PoseCommand
from robot_runtime.core.values.state import RobotState
from robot_runtime.core.values.transforms import pose_from_planar, quaternion_from_rotation
from scripts.harness import finish, percentiles, run_script
from scripts.tables.speed import moving_base
from sim.scene.clock import SimClock
from sim.scene.drivers import SimArm, SimBase, sim_whole_body
from sim.scene.mobile_base import SPEED_MAX, OdometryErrors
from sim.scene.world import World
from sim.tasks import make_task

MS = 1_000_000
TICK_NS = 2 * MS
SPEED, RATE = 0.25, 4.0
"""Of the base on its circle [m/s], [rad/s]: 1 m/s² and 6 cm."""
STANDS_BELOW = 0.05
"""[m/s]"""


@dataclass(frozen=True, kw_only=True)
class BenchMovingBase:
    """Measure end-effector errors while the base drives, and the time to rest after the last command."""

    seeds: Count = 20
    """Number of seeds: odometries and start poses."""
    seconds: Annotated[float, Within(0.1, 3600)] = 6.0
    """Driving time for each."""
    json: Maybe[OutputFile] = None
    """Write the results to this file."""

    def main(self) -> int:
        world = World(make_task("fetch"))
        errors = np.concatenate([hand_errors(world, seed, self.seconds) for seed in range(self.seeds)])
        columns = dict(zip(("with the arm", "without", "odometry's"), 1e3 * errors.T, strict=True))
        rows = {f"hand {name} [mm]": _figures(values) for name, values in columns.items()}
        for speed in (0.5, SPEED_MAX[0]):
            stops = [time_to_rest_s(world, seed, speed=speed) for seed in range(self.seeds)]
            rows[f"last command to rest, from {speed} m/s [ms]"] = _figures(1e3 * np.array(stops))
        return finish(rows, self.json, moving_base(rows), seeds=range(self.seeds))


def hand_errors(world: World, seed: int, seconds: float) -> np.ndarray:
    """(ticks, 3), as the module's docstring tells them apart [m]."""
    world.reset(seed)
    clock, body = SimClock(), sim_whole_body(world)["arm"]
    base, arm = SimBase(world, clock, errors=OdometryErrors()), SimArm(world, clock)
    X_BE, planned, true_start = world.kinematics.forward(world.q), base.read().x_WB, world.x_WB
    assert planned is not None
    X_WE, X_start = pose_from_planar(planned) * X_BE, pose_from_planar(true_start)
    body.reset(world.q, 0)
    hold = Command(
        arm=PoseCommand(p_BE=X_BE.translation, quat_BE=quaternion_from_rotation(X_BE.rotation)),
        base=BasePoseCommand(x_WB=planned),
    )
    out = []
    for t in range(TICK_NS, round(seconds * 1e9), TICK_NS):
        clock.sleep_until_ns(t)
        angle = RATE * t / 1e9
        base.write(BaseTwistCommand(V_WB_B=SPEED * np.array([np.sin(angle), np.cos(angle), 0.0])))
        measured, seen = base.read(), arm.read()
        assert measured.x_WB is not None
        assert seen.X_BE is not None
        state = RobotState(t_ns=t, q=seen.q, dq=seen.dq, x_WB=measured.x_WB, V_WB_B=measured.V_WB_B)
        resolved = body.resolve(hold, state, t)
        assert resolved.arm is not None
        arm.write(resolved.arm)
        X_odometry = pose_from_planar(measured.x_WB)
        X_true = pose_from_planar(planned) * X_start.actInv(pose_from_planar(world.x_WB))
        places = [X_odometry * seen.X_BE, X_odometry * X_BE]
        errors = [np.linalg.norm(X_WE.translation - X.translation) for X in places]
        out.append([*errors, np.linalg.norm((X_odometry * X_BE).translation - (X_true * X_BE).translation)])
    return np.array(out)


def time_to_rest_s(world: World, seed: int, *, speed: float) -> float:
    """From the last of the twist commands until the base is slower than STANDS_BELOW [s]."""
    world.reset(seed)
    clock = SimClock()
    base = SimBase(world, clock, errors=OdometryErrors())
    t = 0
    while np.hypot(*world.V_WB_B[:2]) < 0.98 * speed:
        base.write(BaseTwistCommand(V_WB_B=np.array([-speed, 0.0, 0.0])))  # away from the table
        t += TICK_NS
        clock.sleep_until_ns(t)
        base.read()
    last_ns = t - TICK_NS
    while np.hypot(*world.V_WB_B[:2]) > STANDS_BELOW:
        t += TICK_NS
        clock.sleep_until_ns(t)
        base.read()
    return (t - last_ns) / 1e9


def _figures(values: np.ndarray) -> dict[str, float]:
    return {**percentiles(values), "max": float(values.max()), "n": len(values)}


if __name__ == "__main__":
    run_script(BenchMovingBase, BenchMovingBase.main)
