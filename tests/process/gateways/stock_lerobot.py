"""Runs in a process of its own, as each robot does: LeRobot's stock robot client, until it has acted enough.

stock_lerobot.py ADDRESS JOINT NUM_ACTIONS [COUNT_FILE]; prints the actions as JSON, keeps their number in the
file. JOINT,JOINT are two robots, and a list for each: forked, as importing takes seconds, each in a
process of its own all the same. LeRobot writes a log where it stands. NUMBERS in the environment are another
robot's, with commas, and CAMERA its camera.
"""

import json
import os
import sys
import time
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from threading import Thread

import numpy as np
from lerobot.async_inference import robot_client
from lerobot.async_inference.configs import RobotClientConfig
from lerobot.robots import RobotConfig

NUMBERS = tuple(os.environ.get("NUMBERS", "one.pos,two.pos,gripper.pos").split(","))
CAMERA = os.environ.get("CAMERA", "wrist")


@RobotConfig.register_subclass("one_that_keeps_its_actions")
@dataclass
class KeepingConfig(RobotConfig):
    joint: float = 0.5


class KeepingRobot:
    """A joint that moves a little with every action, a camera of another size than the policy's."""

    def __init__(self, config: KeepingConfig) -> None:
        self.action_features = dict.fromkeys(NUMBERS, float)
        self.observation_features = {**self.action_features, CAMERA: (16, 24, 3)}
        self.joint = config.joint
        self.actions: list[dict[str, float]] = []

    def connect(self) -> None: ...

    def disconnect(self) -> None: ...

    def get_observation(self) -> dict:
        values = [self.joint, *(0.01 * i for i in range(len(NUMBERS) - 2)), 0.04]
        numbers = dict(zip(NUMBERS, values, strict=True))
        return numbers | {CAMERA: np.full((16, 24, 3), 9, np.uint8)}

    def send_action(self, action: dict[str, float]) -> dict[str, float]:
        self.actions.append(action)
        self.joint += 0.01
        return action


def act(address: str, joint: float, num_actions: int, count: Path | None = None) -> list[dict[str, float]]:
    robot_client.make_robot_from_config = KeepingRobot
    config = RobotClientConfig(
        policy_type="act",
        pretrained_name_or_path="echo",
        robot=KeepingConfig(joint=joint),
        actions_per_chunk=10,
        server_address=address,
        fps=60,
        aggregate_fn_name="latest_only",
    )
    client = robot_client.RobotClient(config)
    assert client.start()
    for target, arguments in ((client.receive_actions, ()), (client.control_loop, ("task",))):
        Thread(target=target, args=arguments, daemon=True).start()
    deadline = time.monotonic() + 120.0
    while len(client.robot.actions) < num_actions and time.monotonic() < deadline:
        time.sleep(0.01)
        if count is not None:
            part = count.with_suffix(".part")  # whoever reads finds a whole number
            part.write_text(str(len(client.robot.actions)))
            part.replace(count)
    client.stop()
    return client.robot.actions


def main(address: str, joints: str, num_actions: str, *count: str) -> None:
    orders = [(address, float(joint), int(num_actions), *map(Path, count)) for joint in joints.split(",")]
    if len(orders) == 1:
        acted = act(*orders[0])
    else:
        with get_context("fork").Pool(len(orders)) as pool:
            acted = pool.starmap(act, orders, chunksize=1)
    sys.stdout.write(json.dumps(acted))
    sys.stdout.flush()
    os._exit(0)  # the client's threads are still in gRPC, where an interpreter's end aborts now and then


if __name__ == "__main__":
    main(*sys.argv[1:])
