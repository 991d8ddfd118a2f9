"""Pedals and gamepads: events through a pipe that speaks as the kernel does, and what it lists in files."""

import os

import pytest

from drivers import input_device
from drivers.input_device import CODES, EV_KEY, EV_SYN, SYN_DROPPED, GamepadSwitch, InputSwitch
from robot_runtime.errors import DriverError, InvalidValueError
from tests.process.pedal import Pedal


@pytest.fixture
def pedal(tmp_path):
    made = Pedal(tmp_path)
    yield made
    made.unplug()


@pytest.fixture
def system(tmp_path, monkeypatch):
    """A pedal and a gamepad, as the kernel lists them; their files are pipes."""
    monkeypatch.setattr(input_device, "SYSTEM", tmp_path / "sys")
    monkeypatch.setattr(input_device, "DEVICES", tmp_path / "dev")
    (tmp_path / "dev").mkdir()
    gamepad = [CODES["BTN_SOUTH"], CODES["BTN_TR"], CODES["BTN_1"]]
    for event, name, codes in (("event0", "PCsensor FootSwitch", [48]), ("event1", "Some Pad", gamepad)):
        device = tmp_path / "sys" / event / "device"
        (device / "capabilities").mkdir(parents=True)
        (device / "name").write_text(f"{name}\n")
        bits = sum(1 << code for code in codes)
        words = [f"{bits >> 64 * i & (1 << 64) - 1:x}" for i in range(12)]
        (device / "capabilities" / "key").write_text(" ".join(reversed(words)).lstrip("0 ") + "\n")
        os.mkfifo(tmp_path / "dev" / event)
    return tmp_path / "dev"


def test_it_is_pressed_until_it_is_let_go_and_repeats_change_nothing(pedal):
    switch = pedal.switch()
    assert not switch.read()
    pedal.press()
    assert switch.read()
    pedal.send(EV_KEY, CODES["KEY_B"], 2)
    assert switch.read()
    assert switch.read()
    pedal.let_go()
    assert not switch.read()
    switch.close()


def test_a_moment_without_pressure_is_told_though_it_is_pressed_again(pedal):
    switch = pedal.switch()
    pedal.press()
    assert switch.read()
    pedal.let_go()
    pedal.press()
    assert [switch.read(), switch.read()] == [False, True]
    switch.close()


def test_other_keys_are_not_it(pedal):
    switch = pedal.switch()
    pedal.send(EV_KEY, CODES["KEY_A"], 1)
    assert not switch.read()
    switch.close()


def test_events_that_were_lost_are_taken_for_a_release(pedal):
    switch = pedal.switch()
    pedal.press()
    assert switch.read()
    pedal.send(EV_SYN, SYN_DROPPED, 0)
    assert not switch.read()
    switch.close()


def test_a_device_that_is_gone_is_an_error_and_can_be_closed_twice(pedal):
    switch = pedal.switch()
    pedal.unplug()
    with pytest.raises(DriverError, match=r"KEY_B of .* is gone"):
        switch.read()
    switch.close()
    switch.close()


def test_devices_are_found_by_name_and_gamepads_by_what_they_have(system):
    pedal = InputSwitch("PCsensor FootSwitch", "KEY_B")
    assert pedal.name == "KEY_B of PCsensor FootSwitch"
    pedal.close()
    for button in ("BTN_TR", 1):
        pad = GamepadSwitch(button)
        assert pad._code == CODES["BTN_TR"]
        pad.close()
    last = GamepadSwitch(2)  # buttons of a mouse come after those of a joystick
    assert last._code == CODES["BTN_1"]
    last.close()


@pytest.mark.parametrize(
    ("make", "kind", "words"),
    [
        (lambda: InputSwitch("Pedal"), DriverError, "there are: 'PCsensor FootSwitch' .*event0"),
        (lambda: InputSwitch("/dev/input/none"), DriverError, "cannot be read: No such file"),
        (lambda: InputSwitch("PCsensor FootSwitch", "KEY_A"), DriverError, "has no KEY_A; it has KEY_B"),
        (lambda: InputSwitch("Some Pad", "KEY_WRONG"), InvalidValueError, "no key 'KEY_WRONG': a number"),
        (lambda: GamepadSwitch(5), InvalidValueError, "has buttons 0 to 2, got 5"),
    ],
)
def test_what_is_not_there_is_refused_with_what_is(system, make, kind, words):
    with pytest.raises(kind, match=words):
        make()


def test_no_gamepad_is_said(tmp_path, monkeypatch):
    monkeypatch.setattr(input_device, "SYSTEM", tmp_path)
    with pytest.raises(DriverError, match="no gamepad is there"):
        GamepadSwitch()


@pytest.mark.parametrize("path", ["/dev/zero", "/dev/null", "/", __file__])
def test_what_is_no_input_device_is_refused(path):
    with pytest.raises(DriverError, match=f"{path} is no input device"):
        InputSwitch(path)


def test_a_code_is_a_whole_number_or_a_name(pedal):
    with pytest.raises(InvalidValueError, match=r"no key 1\.5"):
        InputSwitch(str(pedal.path), 1.5)  # type: ignore[arg-type]
