"""One controller per robot, whoever drives it and however that ends."""

import fcntl
import os

import pytest

from policies.scripted import SinePolicy
from robot_runtime.errors import (
    RobotBusyError,
)
from robot_runtime.robot import lease
from tests.process.armed import robot_at, session_at
from tests.process.toy import serving

pytestmark = pytest.mark.real_time


@pytest.fixture(scope="module")
def address():
    with serving(SinePolicy(amplitude=0.3)) as server:
        yield server.address


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
