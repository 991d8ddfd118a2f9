"""Server process of `bench gpu --serve`: serves a VLA, and runs the orders from its pipe."""

import os
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np
from msgspec import structs

from policies.commands.serve import tuned_process
from robot_runtime.core.method.sampler_parts import HorizonAwareSchedule
from robot_runtime.core.policy import ChunkRequest, Policy
from robot_runtime.core.policy_info import PolicyInfo
from robot_runtime.core.values.action import NS_PER_S
from robot_runtime.core.values.state import Image, Observation
from robot_runtime.server.collector import Collector
from robot_runtime.server.server import PolicyServer
from robot_runtime.server.server_metrics import ServerMetrics
from robot_runtime.server.warming import zero_observation
from scripts.bench.wire_floor import ANY_PORT

WARM = 3
"""Chunks that do not count, of every kind."""
HEARTBEAT_NS = 10 * NS_PER_S
"""Period of heartbeat requests, long because a process that computes on all cores may be silent for long."""
_LOOK_S = 0.01
_DEADLINE_NS = 60 * NS_PER_S


@dataclass(frozen=True, kw_only=True)
class Served:
    """What is served, and where it computes."""

    model: str
    cameras: int
    words: int
    small: bool
    device: str
    dtype: str
    compile: bool
    one_graph: bool = False
    max_batch: int = 1
    """Robots that the server warms up for."""
    compile_cache: str = ""
    """Folder of what torch has compiled; empty: the usual one."""


def request_of(observation: Observation, *, epoch: int = 0) -> ChunkRequest:
    return ChunkRequest(
        observation=observation, sampler=HorizonAwareSchedule(), epoch=epoch, deadline_ns=_DEADLINE_NS
    )


def observation_of(info: PolicyInfo) -> Observation:
    """Of a robot at zero that sees noise."""
    nothing, rng = zero_observation(info.schema, info.tasks[0]), np.random.default_rng(0)
    images = {
        name: Image(t_ns=0, pixels=rng.integers(0, 256, image.pixels.shape, np.uint8))
        for name, image in nothing.images.items()
    }
    return structs.replace(nothing, images=images)


def serve_vla(pipe: Connection, setting: Served) -> None:
    """In a process of its own: serve, and meanwhile do what comes through the pipe."""
    if setting.compile:
        from policies.compiled import keep_compiled

        keep_compiled(Path(setting.compile_cache) if setting.compile_cache else None)
    policy = _policy(setting)
    metrics: dict[str, ServerMetrics] = {}
    collector = Collector()
    how: dict[str, Any] = {"max_batch": setting.max_batch, "heartbeat_ns": HEARTBEAT_NS, "open_ns": 0}
    how["collector"] = collector
    with tuned_process(), PolicyServer(policy, ANY_PORT, metrics=metrics, **how) as server:
        opened_s = time.monotonic()
        (each,) = metrics.values()
        thread = Thread(target=server.serve_forever)
        thread.start()
        try:
            with collector, suppress(EOFError):  # the measuring process has gone
                all_warm_s = _when_all_is_warm(each)
                _alone(policy, observation_of(policy.info), WARM)  # in this thread too
                pipe.send((server.address, policy.info.to_dict(), opened_s, all_warm_s))
                _obey(pipe, policy, each)
        finally:
            server.stop()
            thread.join()


def _when_all_is_warm(metrics: ServerMetrics) -> float:
    """Waits until the server has warmed up all that it means to; the time then [s]."""
    while metrics.pieces_to_warm:
        time.sleep(_LOOK_S)
    return time.monotonic()


def _obey(pipe: Connection, policy: Policy, metrics: ServerMetrics) -> None:
    """Say, as often as asked, how long so many chunks of the policy alone take, or for None what the process
    holds."""
    observation = observation_of(policy.info)
    while True:
        n = pipe.recv()
        pipe.send(_holdings() | {"robots": metrics.clients} if n is None else _alone(policy, observation, n))


def _policy(setting: Served) -> Policy:
    from policies.lerobot.random import random_policy
    from policies.lerobot.random_served import random_served

    policy = random_policy(
        setting.model,
        is_small=setting.small,
        num_cameras=setting.cameras,
        device=setting.device,
        dtype=setting.dtype,
    )
    how = {"is_compiled": setting.compile, "is_whole": setting.one_graph}
    return random_served(policy, num_words=setting.words, **how)


def _alone(policy: Policy, observation: Observation, n: int) -> list[tuple[int, int]]:
    """First and last row of n chunks, one after the other [ns]."""
    out = []
    for _ in range(n):
        started_ns, first_ns = time.monotonic_ns(), 0
        for _ in policy.infer(request_of(observation)):
            last_ns = time.monotonic_ns() - started_ns
            first_ns = first_ns or last_ns
        out.append((first_ns, last_ns))
    return out


def _holdings() -> dict[str, float]:
    """Memory [MB], threads and open files of this process as Linux counts them, and what torch holds of the
    GPU's memory if it uses one."""
    out: dict[str, float] = {}
    if (own := Path("/proc/self")).is_dir():
        pages = int((own / "statm").read_text().split()[1])
        out = {"memory_mb": pages * os.sysconf("SC_PAGE_SIZE") / 1e6}
        out |= {name: len(os.listdir(own / of)) for name, of in (("threads", "task"), ("files", "fd"))}
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        out["gpu_mb"] = torch.cuda.memory_reserved() / 1e6
    return out
