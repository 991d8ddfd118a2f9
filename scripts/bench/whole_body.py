"""Measures the cost of the arm's inverse kinematics per tick: ours beside mink's, if mink is installed.

    uv run --with mink --with daqp python -m scripts.bench.whole_body --json bench-whole-body.json

Both follow the same hand targets, a circle in the world while the base sways under the arm, within the same
joint and speed limits and with the same posture to fall back to. Blocks of the two alternate, so that drift
of the machine cancels.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated

import numpy as np
import pinocchio as pin

from drivers.fr3 import FR3_LIMITS
from robot_runtime.cli.options import Maybe, OutputFile, Within
from robot_runtime.core.plan.whole_body import WholeBody, WholeBodyGains
from robot_runtime.core.values.action import BasePoseCommand, Command, JointCommand, PoseCommand
from robot_runtime.core.values.state import RobotState
from robot_runtime.core.values.transforms import pose_from_planar, quaternion_from_rotation
from scripts.harness import finish, percentiles, run_script
from scripts.tables.speed import whole_body
from sim.scene.kinematics import ASSETS, NUM_JOINTS, P_HAND_E, Q_HOME, Kinematics

TICK_NS = 2_000_000
BLOCK = 500
Solve = Callable[[pin.SE3, np.ndarray, int], tuple[np.ndarray, int]]
"""Of hand in the base as planned, how far the base is from its plan (x, y, yaw), and time [ns]: the joints,
and what they took [ns]."""


@dataclass(frozen=True, kw_only=True)
class BenchWholeBody:
    """Time one tick of differential inverse kinematics, 7 joints on a base that moves in the plane."""

    ticks: Annotated[int, Within(500, 1_000_000)] = 5_000
    """How many to time."""
    json: Maybe[OutputFile] = None
    """Write the results to this file."""

    def main(self) -> int:
        solvers = {"ours": _ours()}
        try:
            solvers["mink, daqp"] = _mink()
        except ImportError:
            print("mink is not installed: ours alone")
        samples: dict[str, list[tuple[float, float]]] = {name: [] for name in solvers}
        for start in range(1, self.ticks + 1, BLOCK):
            for name, solve in solvers.items():
                ticks = range(start, min(start + BLOCK, self.ticks + 1))
                samples[name] += [_timed(solve, i) for i in ticks]
        rows = {name: _figures(taken) for name, taken in samples.items()}
        return finish(rows, self.json, whole_body(rows))


def _target(i: int) -> tuple[pin.SE3, np.ndarray]:
    """Hand in the base as planned, and how far the base is from its plan (x, y, yaw)."""
    t = i * TICK_NS / 1e9
    X_BE = Kinematics().forward(np.array(Q_HOME))
    X_BE.translation += np.array([0.05 * np.sin(3.0 * t), 0.10 * np.sin(2.0 * t), 0.05 * np.cos(2.0 * t)])
    return X_BE, 0.03 * np.array([np.sin(1.7 * t), np.sin(2.3 * t), np.sin(1.1 * t)])


def _timed(solve: Solve, i: int) -> tuple[float, float]:
    """Tick i: what it took [us], and the hand's distance in the world from where the plan has it [mm]."""
    X_BE, x_WB = _target(i)
    q, spent_ns = solve(X_BE, x_WB, i * TICK_NS)
    X_WE = pose_from_planar(x_WB) * Kinematics().forward(q)
    return spent_ns / 1e3, 1e3 * float(np.linalg.norm(X_WE.translation - X_BE.translation))


def _ours() -> Solve:
    robot = WholeBody(
        kinematics=Kinematics(), limits=FR3_LIMITS, gains=WholeBodyGains(posture=np.array(Q_HOME))
    )
    robot.reset(np.array(Q_HOME), 0)
    base = BasePoseCommand(x_WB=np.zeros(3))

    def solve(X_BE: pin.SE3, x_WB: np.ndarray, now_ns: int) -> tuple[np.ndarray, int]:
        state = RobotState(t_ns=now_ns, q=np.array(Q_HOME), dq=np.zeros(7), x_WB=x_WB)
        arm = PoseCommand(p_BE=X_BE.translation, quat_BE=quaternion_from_rotation(X_BE.rotation))
        command = Command(arm=arm, base=base)
        start = time.perf_counter_ns()
        out = robot.resolve(command, state, now_ns)
        spent_ns = time.perf_counter_ns() - start
        assert isinstance(out.arm, JointCommand)
        return out.arm.q, spent_ns

    return solve


def _mink() -> Solve:
    import mink
    import mujoco

    spec = mujoco.MjSpec.from_file(str(ASSETS / "fr3.xml"))
    spec.meshdir = str(ASSETS / "meshes")
    model = spec.compile()
    configuration = mink.Configuration(model)
    configuration.update(_full(model.nq, np.array(Q_HOME)))
    hand = mink.FrameTask("hand", "body", position_cost=1.0, orientation_cost=1.0)
    posture = mink.PostureTask(model, cost=1e-3)
    posture.set_target_from_configuration(configuration)
    joints = [model.joint(f"fr3_joint{i + 1}").name for i in range(NUM_JOINTS)]
    speeds = dict(zip(joints, FR3_LIMITS.dq_max, strict=True))
    limits = [mink.ConfigurationLimit(model), mink.VelocityLimit(model, speeds)]
    X_E_hand = pin.SE3(np.eye(3), -np.array(P_HAND_E))

    def solve(X_BE: pin.SE3, x_WB: np.ndarray, now_ns: int) -> tuple[np.ndarray, int]:
        start = time.perf_counter_ns()
        wanted = pose_from_planar(x_WB).inverse() * X_BE * X_E_hand
        hand.set_target(mink.SE3.from_matrix(wanted.homogeneous))
        v = mink.solve_ik(configuration, [hand, posture], TICK_NS / 1e9, "daqp", 1e-6, limits=limits)
        configuration.integrate_inplace(v, TICK_NS / 1e9)
        return configuration.q[:NUM_JOINTS], time.perf_counter_ns() - start

    return solve


def _full(nq: int, q: np.ndarray) -> np.ndarray:
    out = np.zeros(nq)
    out[: len(q)] = q
    return out


def _figures(samples: list[tuple[float, float]]) -> dict[str, float]:
    spent_us, errors_mm = np.array(samples).T
    error = float(np.quantile(errors_mm[len(errors_mm) // 10 :], 0.95))
    return {**percentiles(spent_us), "n": len(samples), "hand_error_p95_mm": error}


if __name__ == "__main__":
    run_script(BenchWholeBody, BenchWholeBody.main)
