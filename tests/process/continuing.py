"""A policy that goes on from its last committed row: where it leads depends on what it was shown."""

from collections.abc import Iterator

import numpy as np
from msgspec import structs

from policies.scripted import HoldPolicy
from robot_runtime.core.policy import ChunkRequest

STEP = 0.001
"""Largest motion of the first joint from row to row [rad]."""


class ContinuingPolicy(HoldPolicy):
    """Every answer goes its own way, by its seed, from the last committed row or the measured joints."""

    def __init__(self) -> None:
        super().__init__(dt_ns=33_333_333)

    def infer(self, request: ChunkRequest) -> Iterator[np.ndarray]:
        d, planned = request.inference_delay, request.prev_action_chunk
        (rows,) = super().infer(structs.replace(request, prev_action_chunk=None, inference_delay=0))
        if d > 0:
            assert planned is not None
            rows[:d], rows[d:] = planned[:d], planned[d - 1]
        last = rows[d - 1] if d > 0 else rows[0]
        step = STEP * np.random.default_rng(request.seed).choice([-1.0, 0.0, 1.0])
        rows[d:, 0] = last[0] + step * np.arange(1, len(rows) - d + 1)
        return iter([rows])
