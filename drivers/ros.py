"""Parts of a robot that speaks ROS: `RosBase`, `RosJoints`, `RosGripper`, `RosCamera` over one `RosBridge`.

    bridge = RosBridge("ws://robot:9090")
    Robot(base=RosBase(bridge), cameras={"chest": RosCamera(bridge, "/chest/compressed")}, limits=limits)

What stops it. `stop` publishes a zero twist, or the measured joint positions, at once. A base, or joints
driven by velocity, that get no command for `silence_s` are sent zeros by a separate process, which outlives
this one if it is killed or suspended. A machine that dies, or a split network, sends nothing more: the
base's own controller has to stop it (`cmd_vel` timeout). No safety function.
"""

import base64
import math
from threading import Condition
from typing import Any

import numpy as np

from drivers.rosbridge import Message, RosBridge, RosTime
from robot_runtime.clock import Clock, MonotonicClock
from robot_runtime.core.robot import ArmState, BaseState, GripperState
from robot_runtime.core.values.action import NS_PER_S
from robot_runtime.core.values.command import (
    ArmCommand,
    BaseCommand,
    BaseTwistCommand,
    GripperCommand,
    JointCommand,
    JointVelocityCommand,
)
from robot_runtime.core.values.state import Image
from robot_runtime.errors import DriverError, InvalidValueError

MOST_S = 60.0
"""Longest time that may be declared [s]."""
MOST_PIXELS = 50_000_000
"""More pixels than any camera's image has."""
FIRST_S = 5.0
"""How long a part waits for its first message [s]."""


class _Newest[T]:
    """The newest value of a topic; the control thread reads it, and waits only for the first one."""

    def __init__(self, bridge: RosBridge, topic: str, message_type: str) -> None:
        self._bridge, self._topic, self._type = bridge, topic, message_type
        self._changed = Condition()
        self._value: T | None = None
        self._number = 0

    def put(self, value: T) -> None:
        with self._changed:
            self._value, self._number = value, self._number + 1
            self._changed.notify_all()

    def get(self) -> T:
        """Return the newest value. DriverError: none has come, or there will be no more."""
        self._bridge.check_open()
        if self._value is None:
            self._bridge.wait_until_ready()
            self.wait_beyond(0, FIRST_S)
        if self._value is None:
            raise DriverError(
                f"no {self._type} on {self._topic} of {self._bridge.url} within {FIRST_S:g} s; "
                "is that the right topic?"
            )
        return self._value

    def wait_beyond(self, number: int, timeout_s: float) -> int:
        """Wait for a value after that one; return the number of the newest."""
        with self._changed:
            self._changed.wait_for(lambda: self._number > number, timeout_s)
            return self._number

    def peek(self) -> T | None:
        return self._value


class RosBase:
    """A mobile base: nav_msgs/Odometry in, geometry_msgs/Twist or TwistStamped out."""

    def __init__(
        self,
        bridge: RosBridge,
        *,
        command_topic: str = "/cmd_vel",
        command_type: str = "geometry_msgs/Twist",
        odometry_topic: str = "/odom",
        frame_id: str = "base_link",
        state_latency_s: float = 0.0,
        silence_s: float = 0.25,
        command_hz: float = 50.0,
        clock: Clock | None = None,
    ) -> None:
        """
        frame_id: of stamped twists.
        state_latency_s: from a measurement to its stamp [s].
        silence_s: the base is stopped after this long without a command [s].
        command_hz: highest rate of published twists, at any control rate: the newest,
            and one that stops the base at once.
        """
        if command_type not in ("geometry_msgs/Twist", "geometry_msgs/TwistStamped"):
            raise InvalidValueError(
                f"expected geometry_msgs/Twist or geometry_msgs/TwistStamped for a base, got {command_type!r}"
            )
        _check_silence(silence_s)
        _check_latency(state_latency_s)
        if not 1.0 / silence_s < command_hz <= 1000.0:
            raise InvalidValueError(
                f"command_hz is above {1.0 / silence_s:g}, which is 1 / silence_s, and up to 1000, got "
                f"{command_hz!r:.60}"
            )
        self._period_ns, self._due_ns, self._sent = round(NS_PER_S / command_hz), 0, np.zeros(3)
        self._bridge, self._topic, self._frame = bridge, command_topic, frame_id
        self.address = f"{command_topic} at {bridge.url}"
        self._is_stamped = command_type.endswith("Stamped")
        self._clock: Clock = clock or MonotonicClock()
        self._latency_ns, self.silence_s = round(state_latency_s * NS_PER_S), silence_s
        self._ros_time = RosTime()
        self._newest: _Newest[BaseState] = _Newest(bridge, odometry_topic, "nav_msgs/Odometry")
        bridge.advertise(command_topic, command_type)
        bridge.subscribe(odometry_topic, "nav_msgs/Odometry", self._take)
        bridge.at_the_end(self.stop)
        self._guard = bridge.guard(command_topic, command_type, silence_s)

    def read(self) -> BaseState:
        return self._newest.get()

    def write(self, command: BaseCommand) -> BaseTwistCommand:
        if not isinstance(command, BaseTwistCommand):
            raise DriverError(f"expected a twist for a ROS base, got {type(command).__name__}")
        _check(self._bridge, command.V_WB_B)
        now_ns = self._clock.now_ns()
        begins_rest = not command.V_WB_B.any() and bool(self._sent.any())
        if begins_rest or now_ns >= self._due_ns:
            self._due_ns = max(self._due_ns + self._period_ns, now_ns)
            self._publish(command.V_WB_B)
        self._guard(self._message(np.zeros(3)))
        return BaseTwistCommand(V_WB_B=self._sent)

    def stop(self) -> None:
        self._publish(np.zeros(3))
        self._guard(None)

    def _publish(self, twist: np.ndarray) -> None:
        self._sent = twist
        self._bridge.publish(self._topic, self._message(twist))

    def _message(self, twist: np.ndarray) -> Message:
        vx, vy, wz = twist.tolist()
        message: Message = {
            "linear": {"x": vx, "y": vy, "z": 0.0},
            "angular": {"x": 0.0, "y": 0.0, "z": wz},
        }
        if self._is_stamped:
            stamp = self._bridge.stamp(self._ros_time.stamp_ns(self._clock.now_ns()))
            message = {"header": {"stamp": stamp, "frame_id": self._frame}, "twist": message}
        return message

    def _take(self, message: Message, arrival_ns: int) -> None:
        pose, twist = message["pose"]["pose"], message["twist"]["twist"]
        position, turn = pose["position"], pose["orientation"]
        x, y, z, w = (float(turn[name]) for name in "xyzw")
        if abs(math.hypot(x, y, z, w) - 1.0) > 0.1:  # zeros, as in a message that was not filled in
            raise ValueError(f"an orientation is a unit quaternion, got ({x}, {y}, {z}, {w})")
        yaw = math.atan2(2.0 * (w * z + x * y), 1.0 - 2.0 * (y * y + z * z))
        t_ns = self._ros_time.capture_ns(stamp_of(message), arrival_ns)
        self._newest.put(
            BaseState(
                t_ns=t_ns - self._latency_ns,
                x_WB=np.array([float(position["x"]), float(position["y"]), yaw]),
                V_WB_B=np.array(
                    [
                        float(twist["linear"]["x"]),
                        float(twist["linear"]["y"]),
                        float(twist["angular"]["z"]),
                    ]
                ),
            )
        )


class RosJoints:
    """Joints by name: sensor_msgs/JointState in, trajectory_msgs/JointTrajectory or Float64MultiArray out."""

    def __init__(
        self,
        bridge: RosBridge,
        joints: tuple[str, ...] | list[str],
        *,
        command_topic: str,
        command_type: str = "trajectory_msgs/JointTrajectory",
        state_topic: str = "/joint_states",
        lead_s: float = 0.1,
        silence_s: float = 0.25,
        state_latency_s: float = 0.0,
    ) -> None:
        """
        joints: their names in ROS, in the order that policies see.
        lead_s: duration of a trajectory to a setpoint [s].
        silence_s: joints driven by velocity are stopped after this long without a command [s].
        state_latency_s: from a measurement to its stamp [s].
        """
        if command_type not in ("trajectory_msgs/JointTrajectory", "std_msgs/Float64MultiArray"):
            raise InvalidValueError(
                "expected trajectory_msgs/JointTrajectory or std_msgs/Float64MultiArray for joints, "
                f"got {command_type!r}"
            )
        if isinstance(joints, str) or len(set(joints)) < len(joints) or not all(joints) or not joints:
            raise InvalidValueError(f"expected a name for each joint, got {list(joints)}")
        if not 0.0 <= lead_s <= MOST_S:
            raise InvalidValueError(f"lead_s is from 0 to {MOST_S:g} s, got {lead_s!r:.60}")
        _check_silence(silence_s)
        _check_latency(state_latency_s)
        self.silence_s = silence_s
        self._bridge, self._joints, self._topic = bridge, tuple(joints), command_topic
        self.address = f"{command_topic} at {bridge.url}"
        self._is_trajectory = command_type.endswith("Trajectory")
        self._lead, self._latency_ns = (
            bridge.stamp(round(lead_s * NS_PER_S)),
            round(state_latency_s * NS_PER_S),
        )
        self._ros_time = RosTime()
        self._is_by_velocity = False
        self._newest: _Newest[ArmState] = _Newest(
            bridge, state_topic, f"sensor_msgs/JointState with joints {', '.join(joints)}"
        )
        bridge.advertise(command_topic, command_type)
        bridge.subscribe(state_topic, "sensor_msgs/JointState", self._take)
        bridge.at_the_end(self.stop)
        self._guard = bridge.guard(command_topic, command_type, silence_s)

    @property
    def num_joints(self) -> int:
        return len(self._joints)

    def read(self) -> ArmState:
        return self._newest.get()

    def write(self, command: ArmCommand) -> ArmCommand:
        match command:
            case JointCommand(q=q):
                _check(self._bridge, q)
                self._is_by_velocity = False
                self._publish(positions=q)
                self._guard(None)
            case JointVelocityCommand(dq=dq):
                _check(self._bridge, dq)
                self._is_by_velocity = True
                self._publish(velocities=dq)
                self._guard(self._message(velocities=np.zeros(self.num_joints)))
            case _:
                raise DriverError(f"expected joint positions or velocities, got {type(command).__name__}")
        return command

    def stop(self) -> None:
        measured = self._newest.peek()
        if self._is_by_velocity:
            self._publish(velocities=np.zeros(self.num_joints))
            self._guard(None)
        elif measured is not None and np.isfinite(measured.q).all():
            self._publish(positions=measured.q)

    def _publish(self, **numbers: np.ndarray) -> None:
        self._bridge.publish(self._topic, self._message(**numbers))

    def _message(self, **numbers: np.ndarray) -> Message:
        ((name, values),) = numbers.items()
        if not self._is_trajectory:
            return {"layout": {"dim": [], "data_offset": 0}, "data": values.tolist()}
        point = {name: values.tolist(), "time_from_start": self._lead}
        header = {"stamp": self._bridge.stamp(0), "frame_id": ""}  # 0: at once
        return {"header": header, "joint_names": list(self._joints), "points": [point]}

    def _take(self, message: Message, arrival_ns: int) -> None:
        names = list(message["name"])
        if not set(self._joints) <= set(names):
            return  # of another part: several may share the topic
        order = [names.index(name) for name in self._joints]
        q = np.array([float(message["position"][i]) for i in order])
        t_ns = self._ros_time.capture_ns(stamp_of(message), arrival_ns) - self._latency_ns
        self._newest.put(ArmState(t_ns=t_ns, q=q, dq=self._speeds(message, order, q, t_ns)))

    def _speeds(self, message: Message, order: list[int], q: np.ndarray, t_ns: int) -> np.ndarray:
        """Return the speeds as measured, or else by differences of positions."""
        measured, before = message.get("velocity") or [], self._newest.peek()
        if len(measured) > max(order):
            return np.array([float(measured[i]) for i in order])
        if before is None or before.t_ns is None or t_ns <= before.t_ns:
            return np.zeros(len(q)) if before is None else before.dq
        return (q - before.q) / ((t_ns - before.t_ns) / NS_PER_S)


class RosGripper:
    """A gripper that is one joint of a JointState, commanded by a std_msgs/Float64MultiArray."""

    def __init__(
        self,
        bridge: RosBridge,
        joint: str,
        *,
        command_topic: str,
        state_topic: str = "/joint_states",
        width_per_unit: float = 2.0,
    ) -> None:
        """width_per_unit: distance between the fingers for 1 of the joint [m]; two fingers that slide: 2."""
        if not math.isfinite(width_per_unit) or width_per_unit == 0.0:
            raise InvalidValueError(f"width_per_unit is a number other than 0, got {width_per_unit}")
        self._joints = RosJoints(
            bridge,
            (joint,),
            command_topic=command_topic,
            command_type="std_msgs/Float64MultiArray",
            state_topic=state_topic,
        )
        self._scale, self.address = width_per_unit, self._joints.address

    def read(self) -> GripperState:
        state = self._joints.read()
        return GripperState(width=float(state.q[0]) * self._scale, t_ns=state.t_ns)

    def write(self, command: GripperCommand) -> GripperCommand:
        self._joints.write(JointCommand(q=np.array([command.width / self._scale])))
        return command

    def stop(self) -> None:
        self._joints.stop()


class RosCamera:
    """A camera: sensor_msgs/CompressedImage, JPEG."""

    def __init__(self, bridge: RosBridge, topic: str, *, latency_s: float = 0.0) -> None:
        """latency_s: from the middle of exposure to the stamp [s]. InvalidValueError: it is out of range."""
        _check_latency(latency_s)
        self._bridge, self._latency_ns = bridge, round(latency_s * NS_PER_S)
        self._ros_time = RosTime()
        self._newest: _Newest[tuple[int, Any]] = _Newest(bridge, topic, "sensor_msgs/CompressedImage")
        self._number = 0
        self._is_closed = False
        bridge.subscribe(topic, "sensor_msgs/CompressedImage", self._take)

    @property
    def size(self) -> tuple[int, int]:
        """Size of the first image."""
        height, width, _ = self._decoded(self._newest.get()).pixels.shape
        return height, width

    def read(self) -> Image:
        while not self._is_closed:
            self._bridge.check_open()
            newest = self._newest.wait_beyond(self._number, 0.5)
            if newest > self._number:
                self._number = newest
                return self._decoded(self._newest.get())
        raise DriverError("the camera was closed")

    def close(self) -> None:
        self._is_closed = True

    def _take(self, message: Message, arrival_ns: int) -> None:
        t_ns = self._ros_time.capture_ns(stamp_of(message), arrival_ns) - self._latency_ns
        self._newest.put((t_ns, message))

    def _decoded(self, taken: tuple[int, Any]) -> Image:
        """Decode an image. ValueError: it is no JPEG, or implausibly large."""
        import simplejpeg

        t_ns, message = taken
        kind, data = str(message.get("format")), message.get("data")
        if "jpeg" not in kind and "jpg" not in kind:
            raise ValueError(f"expected a CompressedImage in JPEG, got {kind!r:.60}")
        if not isinstance(data, str):
            raise ValueError(f"expected image data in base64, got {type(data).__name__}")
        body = base64.b64decode(data)
        height, width = simplejpeg.decode_jpeg_header(body)[:2]
        if height * width > MOST_PIXELS:  # before memory is allocated
            raise ValueError(f"an image of {height} x {width} pixels is larger than any camera's")
        return Image(t_ns=t_ns, pixels=simplejpeg.decode_jpeg(body))


def _check(bridge: RosBridge, numbers: np.ndarray) -> None:
    """DriverError: the numbers cannot be sent."""
    bridge.check_open()
    if not np.isfinite(numbers).all():
        raise DriverError(f"expected finite numbers for a part at {bridge.url}, got {numbers}")


def _check_silence(silence_s: float) -> None:
    if not 0.0 < silence_s <= MOST_S:
        raise InvalidValueError(f"silence_s is above 0 and up to {MOST_S:g} s, got {silence_s!r:.60}")


def _check_latency(latency_s: float) -> None:
    if not -1.0 <= latency_s <= 1.0:
        raise InvalidValueError(f"latency_s is from -1 to 1 s, got {latency_s!r:.60}")


def stamp_of(message: Message) -> int:
    """Return the time in its header on the robot's ROS clock [ns], for ROS 1 or 2."""
    stamp = message["header"]["stamp"]
    seconds, rest = ("secs", "nsecs") if "secs" in stamp else ("sec", "nanosec")
    return int(stamp[seconds]) * NS_PER_S + int(stamp[rest])
