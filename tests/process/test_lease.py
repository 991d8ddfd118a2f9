"""One controller per robot, whoever drives it and however that ends."""

import fcntl
import os
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest

from policies.scripted import SinePolicy
from robot_runtime.errors import (
    RobotBusyError,
)
from robot_runtime.robot import lease
from tests.process.armed import robot_at, session_at
from tests.process.toy import serving

pytestmark = pytest.mark.real_time
EXAMPLE = Path(__file__).parents[2] / "examples" / "own_robot.py"
ENV = os.environ | {"PYTHONPATH": str(EXAMPLE.parents[1])}


@pytest.fixture(scope="module")
def address():
    with serving(SinePolicy(amplitude=0.3)) as server:
        yield server.address


HOLDER = """
import sys, time
sys.path.insert(0, {root!r})
import robot_runtime as rr
from tests.process.armed import robot_at, session_at
with session_at({address!r}, robot_at({device!r})) as session:
    print("driving", flush=True)
    for tick in session:
        pass
"""


@contextmanager
def driven_elsewhere(address: str, device: str):
    code = HOLDER.format(root=str(EXAMPLE.parents[1]), address=address, device=device)
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, env=ENV)
    try:
        assert process.stdout.readline() == "driving\n"
        yield process
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def test_a_second_controller_is_refused_until_the_first_is_gone_even_by_kill_9(address, tmp_path):
    device = f"the arm at {tmp_path}"
    with driven_elsewhere(address, device) as process:
        with (
            pytest.raises(RobotBusyError, match=rf"is driven by process {process.pid} since \d{{4}}-"),
            session_at(address, robot_at(device)),
        ):
            pass
        with session_at(address, robot_at(f"another than {device}")):
            pass
        process.kill()
        process.wait()
        with session_at(address, robot_at(device)) as session:
            assert not session.record.fault


def test_a_lock_that_cannot_be_opened_is_said_and_a_full_disk_locks_all_the_same(monkeypatch, tmp_path):
    monkeypatch.setattr(lease, "_folder", lambda: tmp_path)
    robot = robot_at("the arm")
    with monkeypatch.context() as full:
        full.setattr(os, "pwrite", lambda *_: (_ for _ in ()).throw(OSError(28, "No space left on device")))
        with lease.Lease(robot), pytest.raises(RobotBusyError, match="is driven by another process"):
            lease.Lease(robot).__enter__()
    (path,) = tmp_path.iterdir()
    path.write_bytes(b"\x1b[2Jprocess 7\n")
    with open(path) as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        with pytest.raises(RobotBusyError, match=r"the arm is driven by \[2Jprocess 7: a robot has one"):
            lease.Lease(robot).__enter__()
    path.unlink()
    path.symlink_to("/etc/passwd")
    with pytest.raises(RobotBusyError, match=r"cannot be determined: its lock .*: Too many levels"):
        lease.Lease(robot).__enter__()


def test_two_sessions_of_one_process_are_two_controllers_too(address, tmp_path):
    robot = robot_at(f"the arm at {tmp_path}")
    with session_at(address, robot), pytest.raises(RobotBusyError, match=f"process {os.getpid()}"):
        session_at(address, robot).__enter__()
    with session_at(address, robot):
        pass


# ---- a key of the terminal -------------------------------------------------------------------------------
