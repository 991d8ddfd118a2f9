"""A policy that goes on from its last committed row: where it leads depends on what it was shown."""

from collections.abc import Iterator

import numpy as np
from msgspec import structs

from policies.scripted import HoldPolicy
from robot_runtime.core.policy import ChunkRequest

STEP = 0.001
"""Largest motion of the first joint from row to row [rad]."""
BEND = STEP / 4
"""By how much that motion changes from one row to the next.

A kink at a row of one chunk lies between two rows of the next, on another grid in time; read there, it is
off by up to a quarter of its change of speed. So the path has small kinks only."""


class ContinuingPolicy(HoldPolicy):
    """Every answer goes on at the speed of the committed rows, then faster or slower, by its seed."""

    def __init__(self) -> None:
        super().__init__(dt_ns=33_333_333)

    def infer(self, request: ChunkRequest) -> Iterator[np.ndarray]:
        d, planned = request.inference_delay, request.prev_action_chunk
        (rows,) = super().infer(structs.replace(request, prev_action_chunk=None, inference_delay=0))
        speed = 0.0
        if d > 0:
            assert planned is not None
            rows[:d], rows[d:] = planned[:d], planned[d - 1]
            speed = planned[d - 1, 0] - planned[d - 2, 0] if d > 1 else 0.0
        bend = BEND * np.random.default_rng(request.seed).choice([-1.0, 1.0])
        speeds = np.clip(speed + bend * np.arange(1, len(rows) - d + 1), -STEP, STEP)
        rows[d:, 0] = rows[max(d - 1, 0), 0] + np.cumsum(speeds)
        return iter([rows])
