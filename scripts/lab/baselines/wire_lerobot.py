"""LeRobot's own asynchronous server and robot client around an instant policy: round trips on request.

    wire_lerobot.py HEIGHT WIDTH SERVER_SLEEP_S     for `python -m scripts.bench peers`

Every line "n period_s" on the input is answered with the times of n round trips as JSON [ns], which begin no
closer than that period. Start it in a folder of its own: LeRobot writes a log there.
Not LeRobot's are the policy, the robot, and processors that do nothing.
"""

import json
import logging
import multiprocessing
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from multiprocessing.connection import Connection
from threading import Event, Thread
from types import SimpleNamespace
from typing import Any

import grpc
import numpy as np
import torch
from lerobot.async_inference import policy_server, robot_client
from lerobot.async_inference.configs import PolicyServerConfig, RobotClientConfig
from lerobot.async_inference.helpers import TimedObservation
from lerobot.configs import FeatureType, PolicyFeature
from lerobot.robots import RobotConfig
from lerobot.transport import services_pb2_grpc

HORIZON, DIM, CAMERAS = 50, 14, ("left", "right")
JOINTS = [f"joint_{i}.pos" for i in range(DIM)]


class InstantPolicy:
    """Always the same rows."""

    def __init__(self, size: tuple[int, int]) -> None:
        feature = PolicyFeature(FeatureType.VISUAL, (3, *size))
        self.config = SimpleNamespace(
            image_features={f"observation.images.{name}": feature for name in CAMERAS}
        )

    def to(self, device: str) -> "InstantPolicy":
        return self

    def predict_action_chunk(self, observation: dict[str, torch.Tensor]) -> torch.Tensor:
        return torch.ones((1, HORIZON, DIM))


def serve(pipe: Connection, size: tuple[int, int], sleep_s: float) -> None:
    """LeRobot's server, bound as its `serve` does, to this machine only."""
    policy = SimpleNamespace(from_pretrained=lambda path: InstantPolicy(size))
    policy_server.get_policy_class = lambda kind: policy
    policy_server.make_pre_post_processors = lambda *_, **__: (lambda batch: batch, lambda rows: rows)
    server = grpc.server(ThreadPoolExecutor(max_workers=4))
    servicer = policy_server.PolicyServer(PolicyServerConfig(inference_latency=sleep_s))
    services_pb2_grpc.add_AsyncInferenceServicer_to_server(servicer, server)
    pipe.send(server.add_insecure_port("127.0.0.1:0"))
    logging.disable(logging.CRITICAL)
    server.start()
    server.wait_for_termination()


@RobotConfig.register_subclass("one_that_stands_still")
@dataclass
class StillConfig(RobotConfig):
    height: int = 0
    width: int = 0


class StillRobot:
    """Reports its observation."""

    def __init__(self, config: StillConfig) -> None:
        self.action_features = dict.fromkeys(JOINTS, float)
        size = (config.height, config.width, 3)
        self.observation_features: dict[str, Any] = {**self.action_features, **dict.fromkeys(CAMERAS, size)}

    def connect(self) -> None: ...


def started_client(port: int, size: tuple[int, int]) -> tuple[robot_client.RobotClient, Event]:
    """LeRobot's client with its receiving thread, and what is set when a chunk is in its queue."""
    robot_client.make_robot_from_config = StillRobot
    config = RobotClientConfig(
        policy_type="act",
        pretrained_name_or_path="instant",
        robot=StillConfig(height=size[0], width=size[1]),
        actions_per_chunk=HORIZON,
        server_address=f"127.0.0.1:{port}",
        aggregate_fn_name="latest_only",
    )
    client, came = robot_client.RobotClient(config), Event()
    aggregate = client._aggregate_action_queues

    def aggregate_and_say(*arguments: Any) -> None:
        aggregate(*arguments)
        came.set()

    client._aggregate_action_queues = aggregate_and_say
    assert client.start()
    Thread(target=client.receive_actions, daemon=True).start()
    client.start_barrier.wait()
    logging.disable(logging.CRITICAL)
    return client, came


def main(height: int, width: int, sleep_s: float) -> None:
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    context.Process(target=serve, args=(theirs, (height, width), sleep_s), daemon=True).start()
    client, came = started_client(ours.recv(), (height, width))
    raw: dict[str, Any] = {**dict.fromkeys(JOINTS, 0.0), "task": "measure"}
    raw |= {name: np.random.default_rng(0).integers(0, 255, (height, width, 3), np.uint8) for name in CAMERAS}
    step = 0

    def round_trip() -> int:
        nonlocal step
        step += 1
        came.clear()
        started_ns = time.monotonic_ns()
        client.send_observation(
            TimedObservation(timestamp=time.time(), timestep=step, observation=raw, must_go=True)
        )
        assert came.wait(10.0), "LeRobot's server did not answer"
        return time.monotonic_ns() - started_ns

    for line in sys.stdin:
        num, period_s = line.split()
        times, next_s = [], time.monotonic()
        for _ in range(int(num)):
            next_s = max(next_s + float(period_s), time.monotonic())
            time.sleep(max(next_s - time.monotonic(), 0.0))
            times.append(round_trip())
        sys.stdout.write(f"{json.dumps(times)}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]))
