"""The command waits for a person in a real terminal, and puts it back whatever ends it."""

import os
import pty
import select
import signal
import subprocess
import sys
import termios
import time
from contextlib import contextmanager
from pathlib import Path

import pytest

from policies.scripted import SinePolicy
from robot_runtime.errors import (
    InvalidValueError,
)
from robot_runtime.robot.terminal_key import KeySwitch
from tests.process.armed import session_at
from tests.process.pedal import Pedal
from tests.process.toy import serving
from tests.process.waiting import wait_until

pytestmark = pytest.mark.real_time
EXAMPLE = Path(__file__).parents[2] / "examples" / "own_robot.py"
ENV = os.environ | {"PYTHONPATH": str(EXAMPLE.parents[1])}


@pytest.fixture(scope="module")
def address():
    with serving(SinePolicy(amplitude=0.3)) as server:
        yield server.address


@pytest.fixture
def pedal(tmp_path):
    made = Pedal(tmp_path)
    yield made
    made.unplug()


@contextmanager
def run_in_a_terminal(address: str, *options: str, robot: str = f"{EXAMPLE}:robot"):
    """The command, and its terminal."""
    command = ("-m", "robot_runtime.cli", "run", "--robot", robot, "--policy", address, *options)
    ours, theirs = pty.openpty()
    before = termios.tcgetattr(theirs)
    process = subprocess.Popen(
        [sys.executable, *command],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env=ENV,
        start_new_session=True,
        preexec_fn=_heed_hangups,
    )
    try:
        yield process, ours
        wait_until(lambda: termios.tcgetattr(theirs) == before)
    finally:
        process.kill()
        process.wait()
        os.close(ours)
        os.close(theirs)


def _heed_hangups() -> None:
    """Tests that were started with nohup ignore them, and so would what they start."""
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


def read_until(terminal: int, words: str, timeout_s: float = 30.0) -> str:
    said, deadline_s = "", time.monotonic() + timeout_s
    while words not in said:
        assert select.select([terminal], [], [], max(0.0, deadline_s - time.monotonic()))[0], said
        said += os.read(terminal, 65536).decode(errors="replace")
    return said


def test_the_command_waits_for_its_key_and_puts_the_terminal_back(address):
    with run_in_a_terminal(address, "--duration-s", "1.5") as (process, terminal):
        assert "armed by" not in read_until(terminal, "waits to be armed: press a")
        os.write(terminal, b"xya")
        said = read_until(terminal, "num_chunks")
        assert "armed by a" in said
        assert "xya" not in said
        assert process.wait(10.0) == 0


def test_a_file_names_the_switches_and_the_way_home_is_asked_for_too(address, pedal):
    device = f"operator.hold_to_run.device={pedal.path}"
    options = ("--set", device, "parts.arm.q=[0.1,-0.7,0,-2,0,1.5,0.7]", "--home", "--duration-s", "2")
    example = str(EXAMPLE.with_name("armed.toml"))
    with run_in_a_terminal(address, *options, robot=example) as (process, terminal):
        said = read_until(terminal, f"arm goes home slowly: hold KEY_B of {pedal.path} and press a")
        assert "going home" not in said
        pedal.press()
        os.write(terminal, b"a")
        assert "going home: arm" in read_until(terminal, "waits to be armed: hold")
        os.write(terminal, b"a")
        read_until(terminal, "armed by a")
        pedal.let_go()
        read_until(terminal, "stopped, resumes after a reset")
        read_until(terminal, "num_chunks")
        assert process.wait(10.0) == 1


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM], ids=str)
def test_a_terminal_is_put_back_whatever_ends_the_command(address, number):
    with run_in_a_terminal(address) as (process, terminal):
        read_until(terminal, "waits to be armed: press a")
        process.send_signal(number)
        process.wait(10.0)


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGTSTP], ids=str)
def test_a_terminal_that_is_closed_and_ctrl_z_bring_the_robot_to_rest(address, number, tmp_path):
    with run_in_a_terminal(address, "--yes", "--json", str(tmp_path / "run.json")) as (process, terminal):
        read_until(terminal, "connected")
        time.sleep(1.0)  # it moves
        process.send_signal(number)
        assert process.wait(10.0) == 128 + number
    assert (tmp_path / "run.json").exists()


def test_without_a_terminal_the_command_refuses_to_move_unless_it_is_told_to(address):
    command = ("-m", "robot_runtime.cli", "run", "--robot", f"{EXAMPLE}:robot", "--policy", address)
    done = subprocess.run(
        [sys.executable, *command],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        env=ENV,
        timeout=60,
    )
    assert done.returncode == 1
    assert "standard input is no terminal" in done.stderr
    assert "--yes" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_key_of_the_terminal_is_no_hold_to_run():
    ours, theirs = pty.openpty()
    before, key = termios.tcgetattr(theirs), KeySwitch("a", descriptor=theirs)
    key.open()
    assert termios.tcgetattr(theirs) != before
    with pytest.raises(InvalidValueError, match="does not report its release"):
        session_at("tcp://127.0.0.1:1", hold_to_run=key)
    key.close()
    key.close()
    assert termios.tcgetattr(theirs) == before
    os.close(ours)
    os.close(theirs)
    with pytest.raises(InvalidValueError, match="key is one character, got 'ab'"):
        KeySwitch("ab")


def test_a_letter_is_pressed_with_caps_lock_on_as_well():
    ours, theirs = pty.openpty()
    key = KeySwitch("a", descriptor=theirs)
    key.open()
    pressed = []
    for struck in (b"A", b"a", b"b"):
        os.write(ours, struck)
        select.select([theirs], [], [], 5.0)
        pressed.append(key.read())
    key.close()
    os.close(ours)
    os.close(theirs)
    assert pressed == [True, True, False]
