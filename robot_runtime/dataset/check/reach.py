"""Checks that end-effector poses are reachable: `Reach`, of an arm, and `reach`."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import pinocchio as pin

from robot_runtime.core.plan.limits import BaseLimits, GripperLimits, JointLimits, Limits
from robot_runtime.core.values.columns import HAND
from robot_runtime.dataset.check.episode import Bounds, Numbers
from robot_runtime.dataset.check.finding import Finding, Severity
from robot_runtime.dataset.recording import ACTION, STATE

FAR_M, AGREES_M = 0.1, 0.03
SAMPLES = 4000


@dataclass(frozen=True, eq=False)
class Reach:
    """Reachable positions of an arm's end effector."""

    hand_of: Callable[[np.ndarray], pin.SE3]
    """Forward kinematics: joints [rad] to X_BE."""
    joints: tuple[str, ...]
    """Names of the joints in a dataset, in order."""
    places: np.ndarray
    """Sampled reachable positions (n, 3) [m]."""

    @classmethod
    def of(
        cls, hand_of: Callable[[np.ndarray], pin.SE3], joints: tuple[str, ...], limits: JointLimits
    ) -> "Reach":
        """Sample all joint positions within the limits."""
        rng = np.random.default_rng(0)
        q = rng.uniform(limits.q_min, limits.q_max, (SAMPLES, len(limits.q_min)))
        return cls(hand_of, joints, np.array([hand_of(each).translation for each in q]))

    def beyond_m(self, p_BE: np.ndarray) -> np.ndarray:
        """Distance of positions (n, 3) from the nearest reachable sample [m]."""
        out = np.empty(len(p_BE))
        for start in range(0, len(p_BE), 200):
            part = p_BE[start : start + 200]
            out[start : start + 200] = np.linalg.norm(part[:, None] - self.places, axis=2).min(1)
        return out


def reach(numbers: Numbers, of: Mapping[str, Reach]) -> Iterator[Finding]:
    """End effectors out of reach, and end effectors that disagree with their joints."""
    for part, arm in of.items():
        hand = [f"{part}.{name}" for name in HAND[:3]]
        for column in (STATE, ACTION):
            series = numbers.series(column)
            if not all(name in series for name in hand):
                continue
            p_BE = np.stack([series[name] for name in hand], axis=1)
            beyond = arm.beyond_m(np.nan_to_num(p_BE))
            if len(beyond) and beyond.max() > FAR_M:
                k = int(beyond.argmax())
                place = ", ".join(f"{each:.2f}" for each in p_BE[k])
                text = f"{column}: the end effector of {part} is at ({place}) m in frame {k}, out of reach"
                yield Finding("reach", Severity.UNUSABLE, text)
            elif column == STATE and all(name in series for name in arm.joints):
                yield from _elsewhere(part, arm, series, p_BE)


def _elsewhere(
    part: str, arm: Reach, series: Mapping[str, np.ndarray], p_BE: np.ndarray
) -> Iterator[Finding]:
    q = np.stack([series[name] for name in arm.joints], axis=1)
    for k in np.unique(np.linspace(0, len(q) - 1, min(len(q), 50)).astype(int)):
        off = float(np.linalg.norm(arm.hand_of(q[k]).translation - p_BE[k]))
        if off > AGREES_M:
            text = f"the end effector of {part} is {100 * off:.0f} cm from its joints' pose, in frame {k}"
            yield Finding("reach", Severity.DOUBTFUL, text)
            return


def bounds_of(limits: Limits, joints: Mapping[str, tuple[str, ...]]) -> dict[str, Bounds]:
    """Limits by the names of columns. joints: names of each part's joints."""
    out: dict[str, Bounds] = {}
    for part, own in limits.parts.items():
        match own:
            case JointLimits(q_min=q_min, q_max=q_max, dq_max=dq_max):
                for name, *bounds in zip(joints.get(part, ()), q_min, q_max, dq_max, strict=False):
                    out[f"{part}.{name}"] = Bounds(*map(float, bounds))
            case GripperLimits(low=low, high=high):
                out[f"{part}.width"] = Bounds(low, high)
            case BaseLimits(motion=motion):
                for name, speed in zip(("vx", "vy", "wz"), motion.speed, strict=True):
                    out[f"{part}.{name}"] = Bounds(-float(speed), float(speed))
    return out
