"""Policies for faults: one that swings, and others that are late, wild, broken or hang."""

import time
from collections.abc import Iterator
from dataclasses import replace
from itertools import cycle
from typing import Any, get_args

import numpy as np

from robot_runtime.core.method.capabilities import Capabilities
from robot_runtime.core.method.sampler_parts import SamplerPart
from robot_runtime.core.policy import ChunkRequest
from robot_runtime.core.policy_info import PolicyInfo
from robot_runtime.core.values.action import NS_PER_S, ActionSpec
from robot_runtime.core.values.fields import BasePose, GripperWidth, JointPosition
from robot_runtime.core.values.schema import Schema
from robot_runtime.core.values.state import BASE

WRONG_BY = 0.2
"""Offset of the rows of an invalid answer [rad], where a robot that runs any of them would go."""
FRANKA = Schema.of(ActionSpec(fields=(JointPosition(7), GripperWidth()), horizon=1, dt_ns=1))
"""Seven joints and a gripper."""
HORIZON, DT_NS = 8, 50_000_000
"""A plan of 0.4 s, so that a robot without answers soon comes to rest."""


class Swing:
    """Swings the joints by 0.1 rad at 0.25 Hz, by the robot's clock; chunks of eight rows."""

    def __init__(self) -> None:
        spec = ActionSpec(fields=FRANKA.action_fields, horizon=HORIZON, dt_ns=DT_NS)
        able = Capabilities(
            samplers=get_args(SamplerPart), max_inference_delay=HORIZON - 1, prefix_at_rest=True
        )
        self.info = PolicyInfo(name="swing", action_spec=spec, schema=FRANKA, capabilities=able)

    def infer(self, request: ChunkRequest) -> Iterator[Any]:
        """Yield one block of rows."""
        state = request.observation.state
        t_s = (state.t_ns + DT_NS * np.arange(HORIZON)) / NS_PER_S
        swing = 0.1 * np.sin(2.0 * np.pi * 0.25 * t_s)
        rows = np.tile([*state.q, state.gripper_width], (HORIZON, 1))
        rows[:, :7] += (swing - swing[0])[:, None]
        yield rows


class HangingSwing(Swing):
    """Hangs in warm-up, or from its first request on."""

    def __init__(self, *, in_warm_up: bool = False) -> None:
        super().__init__()
        self._in_warm_up = in_warm_up

    def infer(self, request: ChunkRequest) -> Iterator[Any]:
        if self._in_warm_up or request.observation.state.t_ns > 0:
            time.sleep(3600.0)
        return super().infer(request)


class LateSwing(Swing):
    """Swings, with each answer late by the next of the given times."""

    def __init__(self, delays_s: tuple[float, ...]) -> None:
        super().__init__()
        self._delays_s = cycle(delays_s)

    def infer(self, request: ChunkRequest) -> Iterator[Any]:
        if request.observation.state.t_ns > 0:  # not the warm-up
            time.sleep(next(self._delays_s))
        yield from super().infer(request)


class NamedRows(Swing):
    """Returns rows that name their request, (request, row, 0, ...), in two blocks."""

    def infer(self, request: ChunkRequest) -> Iterator[Any]:
        rows = np.zeros((HORIZON, self.info.action_spec.dim))
        rows[:, 0], rows[:, 1] = request.request_id, np.arange(HORIZON)
        yield rows[: HORIZON // 2]
        yield rows[HORIZON // 2 :]


class Wild(Swing):
    """Returns targets that no robot can follow, random for each answer: steps, ramps and far positions."""

    def __init__(self) -> None:
        super().__init__()
        self._rng = np.random.default_rng(6)

    def infer(self, request: ChunkRequest) -> Iterator[Any]:
        (rows,) = (np.array(each) for each in super().infer(request))
        kind, joints = self._rng.integers(4), rows[:, :7]
        if kind == 0:
            joints += self._rng.choice([-1.0, 1.0], size=joints.shape) * self._rng.uniform(0.1, 1.0)
        elif kind == 1:
            joints[HORIZON // 2 :] += self._rng.uniform(-2.0, 2.0, 7)
        elif kind == 2:
            joints += np.linspace(0.0, 1.0, HORIZON)[:, None] * self._rng.uniform(-6.0, 6.0, 7)
        else:
            joints[:] = self._rng.uniform(-1.0, 1.0, 7) * 10.0 ** self._rng.integers(0, 9)
        rows[:, 7] = self._rng.uniform(-1.0, 1.0)
        yield rows


class Broken(Swing):
    """Returns answers of which two in three are invalid: of another shape or type, not finite, or an
    error."""

    def __init__(self) -> None:
        super().__init__()
        self._rng = np.random.default_rng(5)

    def infer(self, request: ChunkRequest) -> Iterator[Any]:
        (rows,) = super().infer(request)
        if request.observation.state.t_ns == 0 or self._rng.random() < 1.0 / 3.0:
            yield rows
            return
        wrong = np.array(rows) + WRONG_BY
        bad = wrong.copy()
        bad[self._rng.integers(HORIZON), self._rng.integers(8)] = self._rng.choice([np.nan, np.inf])
        kinds = [
            bad,
            wrong[:, :-1],
            wrong[0],
            np.vstack([wrong, wrong]),
            wrong.astype(object),
            wrong.astype("U9"),
        ]
        kinds += [wrong + 1j, wrong[:0], "rows", None]
        pick = self._rng.integers(len(kinds) + 1)
        if pick == len(kinds):
            raise RuntimeError("a policy's own")
        yield kinds[pick]


CAMERA, SIZE = "wrist", (96, 128)


class Looking(Swing):
    """Swings, and gets images."""

    def __init__(self) -> None:
        super().__init__()
        self.info = replace(self.info, schema=replace(FRANKA, cameras={CAMERA: SIZE}))


DRIVE_SPEED = 0.4


class Drive:
    """Drives a base straight on from its measured pose, by poses."""

    info = PolicyInfo(
        name="drive", action_spec=ActionSpec(fields=(BasePose(),), horizon=HORIZON, dt_ns=DT_NS)
    )

    def infer(self, request: ChunkRequest) -> Iterator[Any]:
        x_WB = request.observation.state.base(BASE).x_WB
        assert x_WB is not None
        x, y, yaw = x_WB
        distance = DRIVE_SPEED * np.arange(HORIZON) * DT_NS / NS_PER_S
        yield np.stack(
            [x + np.cos(yaw) * distance, y + np.sin(yaw) * distance, np.full(HORIZON, yaw)], axis=1
        )
