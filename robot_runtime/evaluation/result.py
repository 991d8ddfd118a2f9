"""The result of one episode: `EpisodeResult`, and `Episode` with everything that happened."""

from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from robot_runtime.core.env import EpisodeScore
from robot_runtime.core.plan.clip import ClipTally
from robot_runtime.core.values.action import NS_PER_S
from robot_runtime.evaluation.delay import DelayedPolicy
from robot_runtime.robot.telemetry import RunRecord


@dataclass(frozen=True, kw_only=True)
class EpisodeResult:
    """Summary of one episode."""

    seed: int
    score: EpisodeScore
    summary: dict[str, float]
    digest: str
    """Fingerprint of the command log."""
    arrivals: tuple[tuple[float, float], ...] = ()
    """For each answer in the plan: (capture since the one before, capture to first row) [s, s]."""
    held_back: dict[str, tuple[int, float]] = field(default_factory=dict)
    """What the limits held back: `ClipTally.figures`."""

    @classmethod
    def of(
        cls,
        seed: int,
        score: EpisodeScore,
        record: RunRecord,
        *,
        clips: ClipTally | None = None,
        server: DelayedPolicy | None = None,
    ) -> "EpisodeResult":
        """Summarise an episode; with a virtual server, also its cost."""
        summary = record.summary()
        if server is not None:
            robot_s = max(summary["duration_s"], 1e-9)
            summary |= {
                "requests_per_s": server.num_requests / robot_s,
                "evaluations_per_s": server.num_evaluations / robot_s,
                "num_failed_requests": float(server.num_failed),
            }
        arrivals = tuple(
            ((b.source.t_obs_ns - a.source.t_obs_ns) / NS_PER_S, b.latency_ns / NS_PER_S)
            for a, b in pairwise(record.splices)
        )
        digest = record.digest() if record.is_whole else ""
        held = {} if clips is None else clips.figures()
        return cls(seed=seed, score=score, summary=summary, digest=digest, arrivals=arrivals, held_back=held)


@dataclass(frozen=True, kw_only=True, eq=False)
class Episode:
    """One episode with everything that happened."""

    result: EpisodeResult
    record: RunRecord
    snapshots: list[np.ndarray] = field(default_factory=list)
    """Frames of the env's world for drawing; empty if none were asked for."""
