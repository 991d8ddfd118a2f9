"""The drivers of ROS robots against a server that follows rosbridge's protocol document."""

import base64
import contextlib
import json
import runpy
import time
from pathlib import Path

import numpy as np
import pytest
import simplejpeg
from hypothesis import given
from hypothesis import strategies as st

import robot_runtime as rr
from drivers.ros import RosBase, RosCamera, RosGripper, RosJoints
from drivers.rosbridge import RosBridge, RosTime
from robot_runtime.core.values.command import (
    BasePoseCommand,
    BaseTwistCommand,
    GripperCommand,
    JointCommand,
    JointVelocityCommand,
)
from robot_runtime.errors import DriverError, InvalidValueError
from robot_runtime.robot_file import open_robot
from sim.devices.ros import RosRobot
from tests.process.slow_link import SlowLink
from tests.process.toy import serving

FORWARD = BaseTwistCommand(V_WB_B=np.array([0.3, 0.0, 0.1]))


@pytest.fixture(params=[1, 2], ids=["ROS 1", "ROS 2"])
def robot(request):
    with RosRobot(ros=request.param) as robot:
        yield robot


@pytest.fixture
def bridge(robot):
    bridge = RosBridge(robot.url, ros=robot.ros)
    yield bridge
    bridge.close()


def zeros(message):
    message = message.get("twist", message)
    return [*message["linear"].values(), *message["angular"].values()] == [0.0] * 6


def test_a_base_goes_where_its_twist_takes_it_and_says_so(robot, bridge):
    base = RosBase(bridge)
    start = base.read()
    base.write(FORWARD)
    assert robot.wait_for(lambda: robot.x_WB[0] > 0.02)
    deadline = time.monotonic() + 10.0
    while base.read().x_WB[0] < 0.02 and time.monotonic() < deadline:
        base.write(FORWARD)
    now = base.read()
    assert now.x_WB[0] >= 0.02
    assert now.x_WB[2] > start.x_WB[2]
    np.testing.assert_allclose(now.V_WB_B, FORWARD.V_WB_B)
    assert start.t_ns < now.t_ns <= time.monotonic_ns()
    prefix = "geometry_msgs/" if robot.ros == 1 else "geometry_msgs/msg/"
    assert robot.advertised == {"/cmd_vel": prefix + "Twist"}


def test_a_base_that_is_told_nothing_is_told_to_stand_within_a_quarter_of_a_second(robot, bridge):
    base = RosBase(bridge)
    base.read()
    base.write(FORWARD)
    told_ns = time.monotonic_ns()
    assert robot.wait_for(lambda: robot.told("/cmd_vel") and zeros(robot.told("/cmd_vel")[-1]))
    assert time.monotonic_ns() - told_ns >= 0.25e9  # not before


def test_joints_driven_by_velocity_are_stopped_in_silence_and_those_driven_by_position_are_not(robot, bridge):
    options = {"command_topic": "/arm/commands", "command_type": "std_msgs/Float64MultiArray"}
    joints = RosJoints(bridge, ("shoulder", "elbow"), **options)
    joints.read()
    joints.write(JointVelocityCommand(dq=np.array([0.3, 0.0])))
    assert robot.wait_for(
        lambda: [m["data"] for m in robot.told("/arm/commands")] == [[0.3, 0.0], [0.0, 0.0]]
    )
    joints.write(JointCommand(q=np.array([0.1, 0.2])))
    time.sleep(0.6)
    assert [m["data"] for m in robot.told("/arm/commands")][2:] == [[0.1, 0.2]]


def test_a_stop_is_sent_at_once_and_twice_does_no_harm(robot, bridge):
    base = RosBase(bridge, silence_s=60.0)
    base.read()
    base.write(FORWARD)
    base.stop()
    base.stop()
    assert robot.wait_for(lambda: robot.told("/cmd_vel") and zeros(robot.told("/cmd_vel")[-1]))


def test_a_bridge_that_is_closed_tells_the_base_to_stand_first(robot, bridge):
    base = RosBase(bridge, silence_s=60.0)
    base.read()
    base.write(FORWARD)
    assert robot.wait_for(lambda: bool(robot.told("/cmd_vel")))
    bridge.close()
    bridge.close()
    assert robot.wait_for(lambda: zeros(robot.told("/cmd_vel")[-1]))


def test_stamped_twists_carry_the_robots_own_time(robot, bridge):
    base = RosBase(bridge, command_type="geometry_msgs/TwistStamped")
    base.read()
    base.write(FORWARD)
    assert robot.wait_for(lambda: bool(robot.told("/cmd_vel")))
    header = robot.told("/cmd_vel")[0]["header"]
    seconds = header["stamp"]["secs" if robot.ros == 1 else "sec"]
    assert seconds == pytest.approx(1_700_000_000 + time.monotonic(), abs=5.0)
    assert header["frame_id"] == "base_link"


def test_joints_are_read_by_name_and_told_in_their_own_order(robot, bridge):
    joints = RosJoints(bridge, ("shoulder", "elbow"), command_topic="/arm/joint_trajectory")
    np.testing.assert_allclose(joints.read().q, [-0.25, 0.5])
    joints.write(JointCommand(q=np.array([0.1, 0.2])))
    assert robot.wait_for(lambda: robot.q == {"shoulder": 0.1, "elbow": 0.2})
    (told,) = robot.told("/arm/joint_trajectory")
    assert told["joint_names"] == ["shoulder", "elbow"]
    assert joints.num_joints == 2


def test_joints_that_are_told_velocities_are_stopped_with_zeros(robot, bridge):
    topic = "/arm/commands"
    joints = RosJoints(
        bridge, ("shoulder", "elbow"), command_topic=topic, command_type="std_msgs/Float64MultiArray"
    )
    joints.read()
    joints.write(JointVelocityCommand(dq=np.array([0.3, 0.0])))
    assert robot.wait_for(lambda: len(robot.told(topic)) == 1)
    joints.stop()
    assert robot.wait_for(lambda: len(robot.told(topic)) == 2)
    assert [message["data"] for message in robot.told(topic)] == [[0.3, 0.0], [0.0, 0.0]]


def test_joints_that_are_told_places_are_stopped_where_they_are(robot, bridge):
    joints = RosJoints(bridge, ("shoulder", "elbow"), command_topic="/arm/joint_trajectory")
    joints.read()
    joints.stop()
    assert robot.wait_for(lambda: bool(robot.told("/arm/joint_trajectory")))
    ((point,),) = (message["points"] for message in robot.told("/arm/joint_trajectory"))
    np.testing.assert_allclose(point["positions"], [-0.25, 0.5])


def test_a_gripper_is_a_joint_with_a_scale(robot, bridge):
    gripper = RosGripper(bridge, "elbow", command_topic="/gripper/commands", width_per_unit=0.1)
    assert gripper.read().width == pytest.approx(0.05)
    gripper.write(GripperCommand(width=0.02))
    assert robot.wait_for(lambda: bool(robot.told("/gripper/commands")))
    assert robot.told("/gripper/commands")[0]["data"] == pytest.approx([0.2])


def test_pictures_come_decoded_each_once_with_their_capture_time(robot, bridge):
    camera = RosCamera(bridge, "/chest")
    assert camera.size == (48, 64)
    first, second = camera.read(), camera.read()
    assert first.pixels[0, 0].tolist() == pytest.approx([200, 0, 0], abs=4)
    assert first.t_ns < second.t_ns <= time.monotonic_ns()
    camera.close()
    with pytest.raises(DriverError, match="closed"):
        camera.read()


def test_a_server_that_comes_back_finds_all_that_was_announced(robot):
    bridge = RosBridge(robot.url, ros=robot.ros)
    base = RosBase(bridge)
    base.read()
    robot.end()
    with RosRobot(ros=robot.ros, port=robot.port, first_x=5.0) as again:
        assert again.wait_for(lambda: "/odom" in again.subscribed and "/cmd_vel" in again.advertised)
        deadline = time.monotonic() + 10.0
        while base.read().x_WB[0] < 5.0 and time.monotonic() < deadline:
            time.sleep(0.01)
        assert base.read().x_WB[0] == pytest.approx(5.0)
        bridge.close()


def test_what_was_published_to_nobody_is_not_sent_to_who_comes_later(robot):
    bridge = RosBridge(robot.url, ros=robot.ros)
    base = RosBase(bridge, silence_s=60.0)
    base.read()
    robot.end()
    deadline = time.monotonic() + 10.0
    while bridge.is_connected and time.monotonic() < deadline:
        time.sleep(0.01)
    base.write(FORWARD)
    with RosRobot(ros=robot.ros, port=robot.port) as again:
        assert again.wait_for(lambda: "/odom" in again.subscribed)
        base.write(BaseTwistCommand(V_WB_B=np.array([0.1, 0.0, 0.0])))
        assert again.wait_for(lambda: bool(again.told("/cmd_vel")))
        assert again.told("/cmd_vel")[0]["linear"]["x"] == 0.1
        bridge.close()


def test_a_connection_that_hangs_is_given_up_and_made_anew_with_a_line_of_ours_alone(caplog):
    with RosRobot() as robot:
        link = SlowLink(robot.url.replace("ws://", "tcp://"))
        bridge = RosBridge(link.address.replace("tcp://", "ws://"))
        base = RosBase(bridge)
        base.read()
        link.one_way_ns = 3600 * 10**9  # half-open: what is sent arrives nowhere, and nobody says so
        deadline = time.monotonic() + 10.0
        while bridge.is_connected and time.monotonic() < deadline:
            time.sleep(0.01)
        assert not bridge.is_connected
        old = base.read()
        link.one_way_ns = 0
        while base.read().t_ns == old.t_ns and time.monotonic() < deadline:
            time.sleep(0.01)
        assert base.read().t_ns - old.t_ns > 0.5e9
        assert {record.name for record in caplog.records} == {"drivers.rosbridge"}
        assert [record.exc_info for record in caplog.records] == [None] * len(caplog.records)
        bridge.close()
        link.close()


def test_messages_that_are_none_are_dropped_and_the_next_ones_are_read():
    bad = [
        "",
        "{",
        "[]",
        '{"op": "publish", "topic": "/odom", "msg": {}}',
        '{"op": "publish", "topic": "/never", "msg": {}}',
        '{"op": "status", "level": "error", "msg": "no such topic"}',
        '{"op": "publish", "topic": "/odom", "msg": {"pose": {"pose": null}}}',
    ]
    with RosRobot() as robot:
        robot.garbage += bad
        bridge = RosBridge(robot.url)
        base = RosBase(bridge)
        assert base.read().x_WB.shape == (3,)
        bridge.close()


def publishing(topic, **message):
    stamp = {"sec": 1, "nanosec": 0}
    message = {"header": {"stamp": stamp}, **message}
    return json.dumps({"op": "publish", "topic": topic, "msg": message})


def test_joints_that_measure_nan_keep_no_base_from_its_last_zero_twist():
    broken = publishing("/other", name=["a"], position=[float("nan")])
    with RosRobot() as robot:
        robot.garbage.append(broken)
        bridge = RosBridge(robot.url)
        joints = RosJoints(bridge, ("a",), command_topic="/a", state_topic="/other")
        base = RosBase(bridge, silence_s=60.0)
        base.read()
        joints.stop()
        bridge.at_the_end(lambda: 1 / 0)
        last = RosBase(bridge, command_topic="/last", silence_s=60.0)
        last.write(FORWARD)
        bridge.close()
        assert robot.wait_for(lambda: any(map(zeros, robot.told("/last"))))


def test_an_orientation_that_nobody_filled_in_is_no_yaw_of_zero():
    place = {"position": {"x": 9.0, "y": 0, "z": 0}, "orientation": dict.fromkeys("xyzw", 0)}
    none = dict.fromkeys("xyz", 0)
    odometry = publishing("/odom", pose={"pose": place}, twist={"twist": {"linear": none, "angular": none}})
    with RosRobot() as robot:
        robot.garbage.append(odometry)
        bridge = RosBridge(robot.url)
        assert RosBase(bridge).read().x_WB[0] < 9.0
        bridge.close()


@pytest.mark.parametrize(
    ("message", "sentence"),
    [
        ({"format": "jpeg"}, "expected image data in base64"),
        ({"data": "AAAA"}, "expected a CompressedImage in JPEG"),
        ({"format": "jpeg", "data": [255, 216]}, "got list"),
        ({"format": "jpeg", "data": "AAAA"}, r"."),
        ({"format": "jpeg", "data": "huge"}, "60000 x 60000 pixels is larger than any camera's"),
    ],
)
def test_a_picture_that_is_none_is_a_picture_less_and_no_camera_less(message, sentence):
    if message.get("data") == "huge":
        jpeg = bytearray(simplejpeg.encode_jpeg(np.zeros((8, 8, 3), np.uint8)))
        at = jpeg.index(b"\xff\xc0") + 5
        jpeg[at : at + 4] = (60000).to_bytes(2, "big") * 2
        message = message | {"data": base64.b64encode(jpeg).decode()}
    with RosRobot() as robot:
        robot.garbage.append(publishing("/front", **message))
        bridge = RosBridge(robot.url)
        camera = RosCamera(bridge, "/front")
        with pytest.raises(ValueError, match=sentence):
            camera.read()
        bridge.close()


def test_nobody_at_the_address_is_said_within_two_seconds():
    bridge = RosBridge("ws://127.0.0.1:9")
    base = RosBase(bridge)
    asked_ns = time.monotonic_ns()
    with pytest.raises(DriverError, match=r"no rosbridge server at ws://127.0.0.1:9 .*refused"):
        base.read()
    assert time.monotonic_ns() - asked_ns < 4e9
    bridge.close()


def test_a_topic_that_says_nothing_is_named(monkeypatch):
    monkeypatch.setattr("drivers.ros.FIRST_S", 0.2)
    with RosRobot() as robot:
        bridge = RosBridge(robot.url)
        with pytest.raises(DriverError, match="no nav_msgs/Odometry on /odometry"):
            RosBase(bridge, odometry_topic="/odometry").read()
        bridge.close()


def test_what_a_ros_robot_cannot_be_told_is_refused():
    with RosRobot() as robot:
        bridge = RosBridge(robot.url)
        with pytest.raises(DriverError, match="expected a twist for a ROS base, got BasePoseCommand"):
            RosBase(bridge).write(BasePoseCommand(x_WB=np.zeros(3)))
        with pytest.raises(InvalidValueError, match="TwistStamped for a base, got 'std_msgs/Bool'"):
            RosBase(bridge, command_type="std_msgs/Bool")
        with pytest.raises(InvalidValueError, match="a name for each joint"):
            RosJoints(bridge, ("a", "a"), command_topic="/x")
        with pytest.raises(InvalidValueError, match="a name for each joint"):
            RosJoints(bridge, "ab", command_topic="/x")
        with pytest.raises(InvalidValueError, match="silence_s is above 0 and up to 60 s, got nan"):
            RosBase(bridge, silence_s=float("nan"))
        with pytest.raises(InvalidValueError, match="latency_s is from -1 to 1 s, got inf"):
            RosCamera(bridge, "/chest", latency_s=float("inf"))
        with pytest.raises(InvalidValueError, match="expected a topic name as /cmd_vel, got ''"):
            RosBase(bridge, command_topic="")
        bridge.close()
    with pytest.raises(InvalidValueError, match="ws://HOST:9090, got 'robot:9090'"):
        RosBridge("robot:9090")


def test_the_least_delay_is_taken_for_none_and_a_clock_that_is_set_forgotten():
    ros_time = RosTime()
    assert ros_time.stamp_ns(5) == 0
    assert ros_time.capture_ns(100, 7_000) == 7_000
    assert ros_time.capture_ns(1_100, 8_500) == 8_000  # 500 late
    assert ros_time.capture_ns(2_100, 8_900) == 8_900  # quicker than the first: that one was late
    assert ros_time.capture_ns(0, 9_000) == 9_000  # no stamp
    assert ros_time.stamp_ns(9_900) == 3_100
    day_ns = 86_400 * 10**9
    assert ros_time.capture_ns(day_ns, 10_000) == 10_000


@pytest.fixture(params=["ros_base.py", "ros_base.toml"])
def example(request, monkeypatch):
    """Opens the example's robot at an address."""
    path = Path(__file__).parents[2] / "examples" / request.param

    @contextlib.contextmanager
    def opened(url):
        if request.param.endswith(".toml"):
            with open_robot(str(path), [f"devices.bridge.url={url}"]) as found:
                yield found.robot
            return
        monkeypatch.setenv("ROSBRIDGE", url)
        yield runpy.run_path(str(path))["robot"]()

    return opened


def test_the_examples_drive_the_base_and_leave_it_at_rest(example):
    spec = rr.ActionSpec(fields=(rr.BaseTwist(),), horizon=16, dt_ns=50_000_000)

    @rr.policy(rr.PolicyInfo(name="ahead", action_spec=spec))
    def ahead(observation):
        return np.tile([0.2, 0.0, 0.0], (16, 1))

    with (
        RosRobot() as robot,
        serving(ahead, heartbeat_ns=2_000_000_000) as server,
        example(robot.url) as driven,
    ):
        with rr.Session(driven, policy=server.address, task="", name="robot") as session:
            for _ in session:
                if robot.x_WB[0] > 0.02:
                    session.stop()
        assert session.record.fault == ""
        assert robot.x_WB[0] > 0.02
        assert robot.wait_for(lambda: zeros(robot.told("/cmd_vel")[-1]))


def test_a_topic_that_is_named_while_a_server_is_greeted_is_named_to_it():
    bridge, sent = RosBridge("ws://127.0.0.1:9"), []

    class Connection:
        def send(self, text):
            if not sent:
                bridge.subscribe("/chest", "sensor_msgs/CompressedImage", lambda message, arrival_ns: None)
                bridge.advertise("/lift", "std_msgs/Float64MultiArray")
            sent.append(text)

        def close(self):
            pass

    bridge.advertise("/cmd_vel", "geometry_msgs/Twist")
    bridge._announce(Connection())
    assert any("/chest" in text for text in sent)
    assert any("/lift" in text for text in sent)
    assert bridge.is_connected
    bridge.close()


@given(st.lists(st.integers(0, 400_000_000), min_size=1, max_size=60), st.integers(0, 10**18))
def test_jitter_does_not_move_capture_times_once_a_message_came_at_once(delays_ns, ahead_ns):
    ros_time = RosTime()
    for i, delay_ns in enumerate([0, *delays_ns]):
        made_ns = 10**9 + i * 20_000_000
        assert ros_time.capture_ns(made_ns + ahead_ns, made_ns + delay_ns) == made_ns


class SetClock:
    """Stands where it is set."""

    t_ns = 10**9

    def now_ns(self):
        return self.t_ns


def test_a_base_is_published_to_at_its_own_rate_and_stands_at_once():
    with RosRobot() as robot:
        bridge, clock, sent = RosBridge(robot.url), SetClock(), []
        base = RosBase(bridge, command_hz=50.0, clock=clock)
        base.read()
        publish, bridge.publish = bridge.publish, lambda topic, message: sent.append(message)
        for _ in range(400):  # one second of a control loop
            clock.t_ns += 2_500_000
            assert base.write(FORWARD).V_WB_B.any()
        assert 49 <= len(sent) <= 51
        base.write(BaseTwistCommand(V_WB_B=np.zeros(3)))
        assert zeros(sent[-1])
        bridge.publish = publish
        with pytest.raises(InvalidValueError, match="command_hz is above 4, which is 1 / silence_s"):
            RosBase(bridge, command_hz=4.0)
        bridge.close()
