"""`franky-sim` with a task's objects, in a process of its own, and what is seen of them: `FrankaScene`.

The objects are simulated in franky-sim's own MuJoCo, with the arm that speaks FCI. Where they are, and the
strongest contact so far, is left in shared memory after every step.
"""

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any, Self

import mujoco
import numpy as np

from robot_runtime.core.values.action import NS_PER_MS
from robot_runtime.errors import DriverError
from sim.scene.task import Task
from sim.scene.world import World
from sim.tasks import make_task
from sim.tasks.pick_place import wall_force

START_S = 60.0
LATEST_S = 0.5
"""How long the robot's time stops for torques that have not come [s]."""
_NICE = -15
"""A robot has its own computer: other programs should not make this one late."""
_NUM_SHARED = 16  # the cube's pose (7) and velocity (6), the wall's strongest contact, steps, steps ticked
_FORCE, _STEPS, _TICKED = 13, 14, 15
_AHEAD = 2
"""Steps of 1 ms that the robot's time may be ahead of the last tick: one period of the control loop."""


class FrankaScene:
    """One episode's scene behind FCI at an address of its own; a context manager."""

    def __init__(self, world: World, number: int) -> None:
        """
        world: as the episode begins; it is moved along by `mirror`.
        number: of the scene, so that several have different addresses.
        """
        self._world = world
        self.host = f"127.{1 + os.getpid() % 250}.{number // 250 % 250}.{number % 250 + 2}"
        self._first: float | None = None
        self._opened = contextlib.ExitStack()

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as opened:
            folder = opened.enter_context(tempfile.TemporaryDirectory(prefix="fci-"))
            path = Path(folder) / "shared"
            self._shared = np.memmap(path, dtype=float, mode="w+", shape=(_NUM_SHARED,))
            start = {
                "task": self._world.task.name,
                "q": self._world.q.tolist(),
                "cube": self._world.data.joint("cube").qpos.tolist(),
            }
            command = [sys.executable, "-m", "scripts.lab.fci.scene", self.host, str(path), json.dumps(start)]
            log = opened.enter_context((Path(folder) / "log").open("w+"))
            process = subprocess.Popen(
                command, stdout=log, stderr=subprocess.STDOUT, env=os.environ | {"OMP_NUM_THREADS": "1"}
            )
            with contextlib.suppress(PermissionError):
                os.setpriority(os.PRIO_PROCESS, process.pid, _NICE)
            opened.callback(process.wait)
            opened.callback(process.kill)
            end_s = time.monotonic() + START_S
            while "ready" not in (output := (Path(folder) / "log").read_text()):
                if process.poll() is not None or time.monotonic() > end_s:
                    raise DriverError(f"franky-sim did not start: {output[-500:]}")
                time.sleep(0.02)
            self._opened = opened.pop_all()
        return self

    def __exit__(self, *args: object) -> None:
        self._opened.close()

    @property
    def wall_force(self) -> float:
        """The strongest contact with the wall so far [N]."""
        return float(self._shared[_FORCE])

    def tick(self, now_ns: int) -> None:
        """The control loop has ticked, at that time of the robot's own: this time may go on for a period.

        Until the first tick it does by itself.
        """
        now = now_ns / NS_PER_MS
        if self._first is None:
            self._first = self._shared[_STEPS] - now
        self._shared[_TICKED] = now + self._first

    def mirror(self, q: np.ndarray, width: float) -> World:
        """Our own world with everything where it is there: q (7,) [rad], width of the hand [m]."""
        world, data = self._world, self._world.data
        world.place_robot(q, width)
        data.joint("cube").qpos[:], data.joint("cube").qvel[:] = self._shared[:7], self._shared[7:13]
        mujoco.mj_forward(world.model, data)
        return world


def objects(task: Task) -> list[ET.Element]:
    """A task's objects as MJCF, free to touch everything."""
    spec = mujoco.MjSpec()
    task.add_objects(spec)
    spec.compile()
    body = ET.fromstring(spec.to_xml()).find("worldbody")
    assert body is not None
    for geom in body.iter("geom"):
        for kind in ("contype", "conaffinity"):
            geom.attrib.pop(kind, None)
    return list(body)


def main(host: str, path: str, text: str) -> None:
    """Serve one arm and the task's objects until killed."""
    from franky_sim import SimulationServer
    from franky_sim.mujoco_simulator import MujocoSimulator

    start = json.loads(text)
    shared = np.memmap(path, dtype=float, mode="r+", shape=(_NUM_SHARED,))

    class Scene(MujocoSimulator):
        def _start(self) -> None:
            super()._start()
            model, data = self.model, self.data
            model.opt.cone, model.opt.impratio = mujoco.mjtCone.mjCONE_ELLIPTIC, 10.0  # as in our own
            data.joint("cube").qpos[:] = start["cube"]
            mujoco.mj_forward(model, data)

    with Scene() as sim:
        sim.add_robot(initial_q=start["q"], initial_hand_width=0.08)
        for element in objects(make_task(start["task"])):
            sim.worldbody.append(element)

        def look(_: object) -> None:
            if sim.data is None:
                return
            cube = sim.data.joint("cube")
            shared[:7], shared[7:13] = cube.qpos, cube.qvel
            shared[_FORCE] = max(shared[_FORCE], wall_force(sim))
            shared[_STEPS] += 1

        sim.register_pre_step_callback(look)
        with SimulationServer(sim, hostname_candidates=[host]) as server:
            sys.stdout.write("ready\n")
            sys.stdout.flush()
            while True:
                for robot in server.robot_servers:
                    _await_torques(robot)
                _await_tick(shared)
                server.run_once()


def _await_tick(shared: np.ndarray) -> None:
    """The same for a control loop that is late."""
    end_s = time.monotonic() + LATEST_S
    while 0 < shared[_TICKED] < shared[_STEPS] - _AHEAD and time.monotonic() < end_s:
        time.sleep(0.0001)


def _await_torques(robot: Any) -> None:
    """Stop time while an arm in control waits for its torques: on a busy machine they come late, and old ones
    would cause motions that no robot makes."""
    end_s = time.monotonic() + LATEST_S
    while robot.current_motion_id and time.monotonic() < end_s:
        robot.process_commands()
        if robot._FrankaRobotServer__has_new_command:
            return
        time.sleep(0.0001)


if __name__ == "__main__":
    main(*sys.argv[1:])
