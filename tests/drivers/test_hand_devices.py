"""Gamepads and 3D mice through pipes that speak as the kernel does: what a person leads with them."""

import os
import struct

import numpy as np
import pytest

from drivers import spacemouse
from drivers.gamepad import ABS_RX, ABS_RY, ABS_RZ, ABS_X, ABS_Y, ABS_Z, GamepadTeleoperator
from drivers.input_device import EV_SYN, SYN_DROPPED
from drivers.spacemouse import SpaceMouseTeleoperator
from robot_runtime.core.orders import Arm, BeginEpisode, EndEpisode, Outcome
from robot_runtime.core.teleop import LeadableParts
from robot_runtime.errors import DriverError, InvalidValueError
from tests.drivers.input_pipe import InputPipe, with_axes

ONE = LeadableParts(arms=("arm",), hands=("arm",), grippers=("gripper",), bases=("base",))
TWO = LeadableParts(
    arms=("left_arm", "right_arm"),
    hands=("left_arm", "right_arm"),
    grippers=("left_gripper", "right_gripper"),
)
STICK, TRIGGER = (128, 0, 255, 8), (0, 0, 1023, 0)


@pytest.fixture
def pipe(tmp_path):
    made = InputPipe(tmp_path)
    yield made
    made.unplug()


@pytest.fixture
def pad(pipe, monkeypatch):
    axes = dict.fromkeys((ABS_X, ABS_Y, ABS_RX, ABS_RY), STICK) | dict.fromkeys((ABS_Z, ABS_RZ), TRIGGER)
    with_axes(monkeypatch, axes)

    def made(parts=ONE, **options):
        found = GamepadTeleoperator(str(pipe.path), clock=lambda: 5, **options)
        found.open(parts)
        return found

    return made


def test_a_gamepad_leads_the_hand_while_its_right_shoulder_is_held(pad, pipe):
    gamepad = pad(speed=0.2)
    pipe.axis(ABS_Y, 0)  # the stick ahead
    lead = gamepad.read()
    assert lead.engaged == {"arm": False, "gripper": False, "base": False}
    pipe.press("BTN_TR")
    lead = gamepad.read()
    assert lead.engaged == {"arm": True, "gripper": True, "base": False}
    np.testing.assert_allclose(lead.parts["arm"].v, [0.2, 0.0, 0.0])
    np.testing.assert_allclose(lead.parts["arm"].w, 0.0)
    pipe.press("BTN_TR", 0)
    assert gamepad.read().engaged["arm"] is False
    assert lead.t_ns == 5
    gamepad.close()


def test_sticks_are_read_by_their_own_calibration_and_are_fine_around_the_middle(pad, pipe):
    gamepad = pad(speed=1.0)
    pipe.press("BTN_TR")
    for raw, value in ((128, 0.0), (133, 0.0), (255, -1.0), (192, -0.2)):
        pipe.axis(ABS_X, raw)
        assert gamepad.read().parts["arm"].v[1] == pytest.approx(value, abs=0.03)


def test_arm_and_base_are_led_at_once_with_both_shoulders(pad, pipe):
    gamepad = pad(speed=0.2, base_speed=0.5, base_turn=1.0)
    for button in ("BTN_TR", "BTN_TL"):
        pipe.press(button)
    pipe.axis(ABS_Y, 0)
    pipe.axis(ABS_X, 0)
    pipe.axis(ABS_RY, 0)
    lead = gamepad.read()
    np.testing.assert_allclose(lead.parts["arm"].v, [0.2, 0.0, 0.0])
    np.testing.assert_allclose(lead.parts["base"].V_WB_B, [0.5, 0.0, 1.0])


def test_triggers_open_and_close_and_buttons_are_orders(pad, pipe):
    gamepad = pad()
    pipe.press("BTN_TR")
    pipe.axis(ABS_RZ, 1023)
    assert gamepad.read().parts["gripper"].speed == -1.5
    for button in ("BTN_START", "BTN_SOUTH", "BTN_NORTH", "BTN_EAST"):
        pipe.press(button)
        pipe.press(button, 0)
    assert gamepad.read().orders == (
        Arm(),
        BeginEpisode(),
        EndEpisode(Outcome.SUCCESS),
        EndEpisode(Outcome.OPERATOR_ABORT, keep=False),
    )
    assert gamepad.read().orders == ()


def test_one_of_two_arms_is_led_and_a_button_goes_to_the_next(pad, pipe):
    gamepad = pad(TWO, arm="right_arm")
    pipe.press("BTN_TR")
    assert gamepad.read().engaged == {"right_arm": True, "right_gripper": True}
    pipe.press("BTN_THUMBR")
    assert gamepad.read().engaged == {"left_arm": True, "left_gripper": True}


def test_lost_events_let_go_and_a_pad_that_is_pulled_out_is_an_error(pad, pipe):
    gamepad = pad()
    pipe.press("BTN_TR")
    assert gamepad.read().engaged["arm"]
    pipe.send(EV_SYN, SYN_DROPPED, 0)
    assert not gamepad.read().engaged["arm"]
    pipe.unplug()
    with pytest.raises(DriverError, match="is gone"):
        gamepad.read()
    gamepad.close()
    gamepad.close()


@pytest.mark.parametrize(
    ("parts", "options", "words"),
    [
        (LeadableParts(arms=("arm",)), {}, r"no kinematics of arm.*\[parts.arm.kinematics\].*leader arm"),
        (ONE, {"arm": "left_arm"}, "'left_arm' cannot be driven by velocities; arms that can be are arm"),
        (ONE, {"frame": "world"}, "frame is base or hand, got 'world'"),
        (ONE, {"speed": 0.0}, "speed is above 0, up to 5"),
    ],
)
def test_what_cannot_be_led_or_is_no_option_is_refused(pad, parts, options, words):
    with pytest.raises(InvalidValueError, match=words):
        pad(parts, **options)


class Time:
    def __init__(self):
        self.ns = 0

    def __call__(self):
        return self.ns


@pytest.fixture
def cap(tmp_path):
    """A hidraw device as a pipe, what writes to it, and the time."""
    path = tmp_path / "hidraw3"
    os.mkfifo(path)
    fd, time = os.open(path, os.O_RDWR), Time()
    mouse = SpaceMouseTeleoperator(str(path), speed=0.2, turn=0.8, clock=time)
    mouse.open(ONE)

    def send(kind, *numbers):
        os.write(fd, bytes([kind]) + struct.pack(f"<{len(numbers)}h", *numbers))
        return mouse.read()

    yield send, mouse, time
    mouse.close()
    os.close(fd)


def test_a_cap_pushed_away_lifted_and_turned_moves_the_hand_ahead_up_and_round(cap):
    send, _, _ = cap
    lead = send(1, 0, -350, -350)
    np.testing.assert_allclose(lead.parts["arm"].v, [0.2, 0.0, 0.2])
    assert lead.engaged == {"arm": True, "gripper": True}
    lead = send(2, 0, 0, -350)
    np.testing.assert_allclose(lead.parts["arm"].w, [0.0, 0.0, 0.8])
    lead = send(1, 175, 0, 0, 0, 0, 0)  # newer ones say all six at once
    np.testing.assert_allclose(lead.parts["arm"].w, 0.0)
    assert -0.1 < lead.parts["arm"].v[1] < -0.08


def test_it_lets_go_a_moment_after_the_cap_has_come_to_rest(cap):
    send, mouse, time = cap
    send(1, 350, 0, 0)
    send(1, 5, 0, 0)
    time.ns = 400_000_000
    assert mouse.read().engaged["arm"]
    time.ns = 600_000_000
    assert not mouse.read().engaged["arm"]


def test_its_left_button_closes_and_opens_and_its_right_one_lets_go(cap):
    send, mouse, time = cap
    assert send(3, 1).parts["gripper"].speed == -1.5
    send(3, 0)
    time.ns = 1_200_000_000
    assert mouse.read().parts["gripper"].speed == 0.0
    assert send(3, 1).parts["gripper"].speed == 1.5
    send(1, 350, 0, 0)
    send(3, 0)
    send(1, 0, 0, 0)
    assert send(3, 2).engaged["arm"] is False


def test_a_cap_of_the_kernels_input_events_comes_to_rest_when_it_says_nothing(pipe, monkeypatch):
    with_axes(monkeypatch, {})
    time = Time()
    mouse = SpaceMouseTeleoperator(str(pipe.path), speed=0.2, clock=time)
    mouse.open(ONE)
    pipe.relative(1, -350)
    np.testing.assert_allclose(mouse.read().parts["arm"].v, [0.2, 0.0, 0.0])
    time.ns = 100_000_000
    np.testing.assert_allclose(mouse.read().parts["arm"].v, 0.0)
    mouse.close()


def test_the_first_of_its_maker_is_found_and_none_is_said(tmp_path, monkeypatch):
    monkeypatch.setattr(spacemouse, "SYSTEM", tmp_path)
    monkeypatch.setattr(spacemouse, "DEVICES", tmp_path / "dev")
    with pytest.raises(DriverError, match="no SpaceMouse is there"):
        SpaceMouseTeleoperator()
    for name, said in (("hidraw0", "0003:0000046D:0000C52B"), ("hidraw1", "0003:0000256F:0000C635")):
        (tmp_path / name / "device").mkdir(parents=True)
        (tmp_path / name / "device/uevent").write_text(f"DRIVER=hid-generic\nHID_ID={said}\n")
    with pytest.raises(DriverError, match="dev/hidraw1 cannot be read"):
        SpaceMouseTeleoperator()
