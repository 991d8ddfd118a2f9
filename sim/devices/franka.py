"""A simulated FR3 behind the real FCI protocol: `franky-sim` in its own process, at its own address."""

import itertools
import mmap
import os
import signal
import struct
import subprocess
import sys
import time
from pathlib import Path

START_TIMEOUT_S = 60.0
_numbers = itertools.count(1)

SERVE = """
import mmap, signal, struct, sys
from types import SimpleNamespace
from franky_sim import SimulationServer, franka_robot_protocol, franka_robot_server, franka_server
from franky_sim.mujoco_simulator import MujocoSimulator
address, version = sys.argv[1], int(sys.argv[2])
shared = mmap.mmap(int(sys.argv[3]), 16)
if version:
    # libfranka reads the status in one byte and the version in the next two
    refused = franka_server.ConnectStatus.kIncompatibleLibraryVersion.value | version << 8
    franka_server.ConnectStatus = SimpleNamespace(kSuccess=SimpleNamespace(value=refused))
    franka_server.FrankaServer.library_version = property(lambda self: 0)

is_in_reflex = False

def set_reflex(value):
    global is_in_reflex
    is_in_reflex = value

def with_reflex(self, read=franka_robot_server.FrankaRobotServer.robot_state.fget):
    state = read(self)
    shared[:] = struct.pack("<qd", struct.unpack_from("<q", shared)[0] + 1, max(map(abs, state.dq)))
    if not is_in_reflex:
        return state
    errors = tuple(i == 6 for i in range(41))  # libfranka: joint_reflex
    return state.replace(robot_mode=franka_robot_protocol.RobotMode.kReflex, errors=errors)

def recover(self, *args, handle=franka_robot_protocol.AutomaticErrorRecoveryCommand.handle, **kwargs):
    set_reflex(False)
    return handle(self, *args, **kwargs)

signal.signal(signal.SIGUSR1, lambda *_: set_reflex(True))
franka_robot_server.FrankaRobotServer.robot_state = property(with_reflex)
franka_robot_protocol.AutomaticErrorRecoveryCommand.handle = recover

with MujocoSimulator() as sim:
    sim.add_robot()
    with SimulationServer(sim, hostname_candidates=[address]) as server:
        print("ready", flush=True)
        server.run_forever()
"""


class FrankaRobot:
    """The robot's process; it answers once `wait` has returned. Its time runs as fast as possible."""

    def __init__(self, folder: Path, *, wrong_version: int = 0) -> None:
        """wrong_version: a server version to report, refusing ours; 0: ours."""
        number = os.getpid() * 8 + next(_numbers)
        self.host = f"127.{number >> 16 & 127}.{number >> 8 & 255}.{number % 250 + 2}"
        self._log = folder / f"{self.host}.log"
        memory = os.memfd_create(self.host)
        os.ftruncate(memory, 16)
        self._shared = mmap.mmap(memory, 16)
        command = [sys.executable, "-c", SERVE, self.host, str(wrong_version), str(memory)]
        with self._log.open("w") as log:
            env = os.environ | {"OMP_NUM_THREADS": "1"}
            self._process = subprocess.Popen(
                command, stdout=log, stderr=subprocess.STDOUT, env=env, pass_fds=[memory]
            )
        os.close(memory)

    def wait(self) -> "FrankaRobot":
        """Wait until it answers; RuntimeError after a timeout, with the process killed."""
        deadline_s = time.monotonic() + START_TIMEOUT_S
        while "ready" not in (output := self._log.read_text()):
            if self._process.poll() is not None or time.monotonic() > deadline_s:
                self.kill()
                raise RuntimeError(f"no simulated Franka after {START_TIMEOUT_S:g} s at most: {output}")
            time.sleep(0.02)
        return self

    @property
    def num_states(self) -> int:
        """Number of states sent: one per millisecond of its own time, which is slow on a busy machine."""
        count, _ = struct.unpack("<qd", self._shared[:])
        return int(count)

    @property
    def speed(self) -> float:
        """True speed of its fastest joint [rad/s]."""
        _, fastest = struct.unpack("<qd", self._shared[:])
        return float(fastest)

    def freeze(self) -> None:
        self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    def fall_into_reflex(self) -> None:
        """Enter reflex mode, as after a contact at standstill: mode and errors show it until recovery."""
        self._process.send_signal(signal.SIGUSR1)

    def kill(self) -> None:
        """Kill the process, like kill -9."""
        self._process.kill()
        self._process.wait(START_TIMEOUT_S)
