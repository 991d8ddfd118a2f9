"""A rosbridge v2 server with a small simulated robot, by ROSBRIDGE_PROTOCOL.md."""

import base64
import json
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import simplejpeg
from websockets.exceptions import ConnectionClosed
from websockets.sync.server import Server, ServerConnection, serve

from robot_runtime.core.values.transforms import compose_planar

ROS_OFFSET_NS = 1_700_000_000 * 1_000_000_000
"""Offset of the robot's ROS clock from this machine's monotonic one [ns]."""
WRITTEN_FORMS = {1: ("secs", "nsecs"), 2: ("sec", "nanosec")}


class RosRobot:
    """A base that follows its twist, two joints, and a camera; 50 messages of each per second."""

    def __init__(
        self,
        *,
        ros: int = 2,
        port: int = 0,
        first_x: float = 0.0,
        command_timeout_s: float | None = None,
    ) -> None:
        """command_timeout_s: the base stops after this time without a twist, as a ros2_control base does."""
        self.ros = ros
        self.x_WB, self._twist = np.array([first_x, 0.0, 0.0]), np.zeros(3)
        self.q = {"elbow": 0.5, "shoulder": -0.25}
        self.published: list[tuple[str, dict]] = []
        self.advertised: dict[str, str] = {}
        self.subscribed: dict[str, str] = {}
        self.is_silent = threading.Event()
        """When set, no messages are sent and pings are not answered: a half-open connection."""
        self.delay_ns: Callable[[], int] = lambda: 0
        """Delay of each message, in addition to the machine's [ns]."""
        self.garbage: list[str] = []
        """Texts sent once, before anything else."""
        self.changed = threading.Condition()
        self._timeout_s, self._commanded_s = command_timeout_s, time.monotonic()
        self._server: Server = serve(self._serve, "127.0.0.1", port, compression=None)
        self.port: int = self._server.socket.getsockname()[1]
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()
        self._connections: list[ServerConnection] = []

    @property
    def twist(self) -> np.ndarray:
        """Current twist (vx, vy, wz) [m/s, m/s, rad/s]."""
        is_timed_out = self._timeout_s is not None and time.monotonic() - self._commanded_s > self._timeout_s
        return np.zeros(3) if is_timed_out else self._twist

    @property
    def url(self) -> str:
        return f"ws://127.0.0.1:{self.port}"

    def __enter__(self) -> "RosRobot":
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def end(self) -> None:
        """Close all sockets, as if the process were gone."""
        for connection in self._connections:
            connection.close_socket()
        self._server.shutdown()
        self._thread.join()

    def wait_for(self, is_so: Callable[[], bool], timeout_s: float = 10.0) -> bool:
        with self.changed:
            return self.changed.wait_for(is_so, timeout_s)

    def told(self, topic: str) -> list[dict]:
        """Messages published on a topic."""
        return [message for name, message in self.published if name == topic]

    # ---- the protocol ----------------------------------------------------------------------------------

    def _serve(self, connection: ServerConnection) -> None:
        self._connections.append(connection)
        threading.Thread(target=self._speak, args=(connection,), daemon=True).start()
        try:
            for text in connection:
                self._handle(json.loads(text))
        except ConnectionClosed:
            return

    def _handle(self, operation: dict[str, Any]) -> None:
        with self.changed:
            match operation["op"]:
                case "advertise":
                    self.advertised[operation["topic"]] = operation["type"]
                case "subscribe":
                    self.subscribed[operation["topic"]] = operation["type"]
                case "publish":
                    assert operation["topic"] in self.advertised
                    self.published.append((operation["topic"], operation["msg"]))
                    self._apply(operation["topic"], operation["msg"])
                case other:
                    raise AssertionError(f"unknown op {other}")
            self.changed.notify_all()

    def _apply(self, topic: str, message: dict) -> None:
        if topic == "/cmd_vel":
            twist = message.get("twist", message)
            self._commanded_s = time.monotonic()
            self._twist = np.array([twist["linear"]["x"], twist["linear"]["y"], twist["angular"]["z"]])
        elif "points" in message:
            (point,) = message["points"]
            self.q |= dict(zip(message["joint_names"], point.get("positions", []), strict=False))

    def _speak(self, connection: ServerConnection) -> None:
        try:
            self.wait_for(lambda: bool(self.subscribed), 2.0)  # clients that have not subscribed get nothing
            for text in self.garbage:
                connection.send(text)
            while True:
                time.sleep(0.02)
                if self.is_silent.is_set():
                    continue
                made_ns = time.monotonic_ns()
                self.x_WB = compose_planar(self.x_WB, self.twist * 0.02)
                time.sleep(self.delay_ns() / 1e9)
                for topic, message in self._messages(made_ns).items():
                    if topic in self.subscribed:
                        connection.send(json.dumps({"op": "publish", "topic": topic, "msg": message}))
        except ConnectionClosed:
            return

    def _messages(self, made_ns: int) -> dict[str, dict]:
        stamp = dict(zip(WRITTEN_FORMS[self.ros], divmod(made_ns + ROS_OFFSET_NS, 10**9), strict=True))
        header = {"stamp": stamp, "frame_id": "odom"}
        x, y, yaw = self.x_WB.tolist()
        vx, vy, wz = self.twist.tolist()
        turn = {"x": 0.0, "y": 0.0, "z": float(np.sin(yaw / 2)), "w": float(np.cos(yaw / 2))}
        pose = {"position": {"x": x, "y": y, "z": 0.0}, "orientation": turn}
        twist = {"linear": {"x": vx, "y": vy, "z": 0.0}, "angular": {"x": 0.0, "y": 0.0, "z": wz}}
        pixels = np.zeros((48, 64, 3), np.uint8)
        pixels[..., 0] = 200  # red
        jpeg = base64.b64encode(simplejpeg.encode_jpeg(pixels, quality=95)).decode()
        return {
            "/odom": {
                "header": header,
                "child_frame_id": "base_link",
                "pose": {"pose": pose, "covariance": [0.0] * 36},
                "twist": {"twist": twist, "covariance": [0.0] * 36},
            },
            "/joint_states": {
                "header": header,
                "name": ["wheel", *self.q],
                "position": [9.0, *self.q.values()],
                "velocity": [],
                "effort": [],
            },
            "/chest": {"header": header, "format": "rgb8; jpeg compressed bgr8", "data": jpeg},
        }
