"""The keys of a terminal lead a robot: a real pseudo-terminal, time by hand."""

import os
import pty

import numpy as np
import pytest

from drivers.keyboard import KeyboardTeleoperator
from robot_runtime.core.orders import BeginEpisode, EndEpisode, Outcome, Stop
from robot_runtime.core.teleop import LeadableParts
from robot_runtime.errors import DriverError, InvalidValueError
from tests.drivers.test_hand_devices import ONE, TWO, Time

MS = 1_000_000


@pytest.fixture
def keys():
    """A keyboard, a function that strikes, and the time."""
    opened = []

    def made(parts=ONE, **options):
        ours, theirs = pty.openpty()
        time = Time()
        keyboard = KeyboardTeleoperator(descriptor=theirs, clock=time, **options)
        keyboard.open(parts)
        opened.append((keyboard, ours, theirs))

        def strike(text):
            os.write(ours, text)
            return keyboard.read()

        return keyboard, strike, time

    yield made
    for keyboard, ours, theirs in opened:
        keyboard.close()
        os.close(ours)
        os.close(theirs)


def test_a_stroke_moves_for_a_stated_time_and_a_repeated_one_without_a_gap(keys):
    keyboard, strike, time = keys(speed=0.1, stroke_s=0.15)
    assert keyboard.read().engaged == {}
    lead = strike(b"w")
    assert lead.engaged == {"arm": True}
    np.testing.assert_allclose(lead.parts["arm"].v, [0.1, 0.0, 0.0])
    time.ns = 140 * MS
    np.testing.assert_allclose(strike(b"w").parts["arm"].v, [0.1, 0.0, 0.0])
    time.ns = 280 * MS
    np.testing.assert_allclose(keyboard.read().parts["arm"].v, [0.1, 0.0, 0.0])
    time.ns = 300 * MS
    lead = keyboard.read()
    np.testing.assert_allclose(lead.parts["arm"].v, 0.0)
    assert lead.engaged == {"arm": True}  # it stands, and is hers


def test_arrows_drive_the_base_while_the_hand_goes_and_the_space_bar_lets_all_go(keys):
    _, strike, _ = keys(base_speed=0.3)
    lead = strike(b"w\x1b[A")
    np.testing.assert_allclose(lead.parts["base"].V_WB_B, [0.3, 0.0, 0.0])
    assert lead.engaged == {"arm": True, "base": True}
    lead = strike(b"\x1b")
    assert strike(b"[D").parts["base"].V_WB_B[2] > 0.0  # an arrow that came in two pieces
    assert strike(b" ").engaged == {}


def test_the_gripper_and_the_speed_have_keys(keys):
    _, strike, _ = keys(speed=0.1)
    assert strike(b"c").parts["gripper"].speed == -1.5
    np.testing.assert_allclose(strike(b"+w").parts["arm"].v, [0.125, 0.0, 0.0])


def test_the_next_arm_is_led_and_the_first_one_stands_and_stays_hers(keys):
    _, strike, _ = keys(TWO)
    strike(b"w")
    lead = strike(b"\tw")
    np.testing.assert_allclose(lead.parts["left_arm"].v, 0.0)
    assert lead.parts["right_arm"].v[0] > 0.0
    assert lead.engaged == {"left_arm": True, "right_arm": True}


def test_episodes_and_stops_are_orders_and_other_keys_are_nothing(keys):
    _, strike, _ = keys()
    assert strike(b"nZx0").orders == (
        BeginEpisode(),
        EndEpisode(Outcome.OPERATOR_ABORT, keep=False),
        Stop(),
    )
    assert strike(b"y").orders == (EndEpisode(Outcome.SUCCESS),)


def test_a_terminal_that_is_gone_is_an_error(keys):
    keyboard, _, _ = keys()
    os.close(keyboard._terminal.fileno())
    replaced = os.open("/dev/null", os.O_RDONLY)
    with pytest.raises(DriverError, match="the terminal is gone"):
        keyboard.read()
    assert replaced == keyboard._terminal.fileno()


def test_no_terminal_and_no_hand_are_refused(tmp_path):
    with (tmp_path / "none").open("w") as file:
        keyboard = KeyboardTeleoperator(descriptor=file.fileno())
        with pytest.raises(DriverError, match="needs a terminal, and standard input is none"):
            keyboard.open(ONE)
        with pytest.raises(InvalidValueError, match="no kinematics of arm"):
            keyboard.open(LeadableParts(arms=("arm",)))
    with pytest.raises(InvalidValueError, match="stroke_s is from"):
        KeyboardTeleoperator(stroke_s=0.0)
