"""Runs any driver in its own process, which stops the device when this process dies: `Isolated`.

    base = Isolated("my_base.py:MyBase", port="/dev/ttyUSB0")       or: Isolated(MyBase, port="/dev/ttyUSB0")
    Robot(base=base, limits=limits)

What stops it. The driver's process calls its `stop` after `silence_s` without a command, and when the process
that drives it ends or dies, by SIGKILL too. If the driver's process itself dies, the device continues with
its last command. No safety function.

For mobile bases and groups of joints. The class's file is imported again in that process: code that it runs
as a script belongs under `if __name__ == "__main__":`. A device with its own timeout needs none of this: its
driver declares it, `silence_s = 0.5`.
"""

import contextlib
import importlib
import importlib.util
import inspect
import signal
import sys
import time
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from drivers.child import SLOT, Child, LifeLine, Newest
from robot_runtime.core.robot import ArmState, BaseState
from robot_runtime.core.values.action import NS_PER_S
from robot_runtime.core.values.command import (
    BasePoseCommand,
    BaseTwistCommand,
    JointCommand,
    JointVelocityCommand,
)
from robot_runtime.errors import DriverError, InvalidValueError

Command = BaseTwistCommand | BasePoseCommand | JointCommand | JointVelocityCommand
_COMMANDS: dict[str, tuple[type, str]] = {
    "twist": (BaseTwistCommand, "V_WB_B"),
    "pose": (BasePoseCommand, "x_WB"),
    "q": (JointCommand, "q"),
    "dq": (JointVelocityCommand, "dq"),
}


class Config(msgspec.Struct, frozen=True):
    driver: str
    options: dict[str, Any]
    silence_s: float
    rate_hz: float


class Order(msgspec.Struct, frozen=True):
    number: int = 0
    kind: str = ""
    """Empty: stop."""
    numbers: list[float] = []


class Report(msgspec.Struct, frozen=True, kw_only=True):
    t_ns: int = 0
    state: dict[str, list[float]] = {}
    num_joints: int = 0
    fault: str = ""


class Isolated:
    """A mobile base or a group of joints; see above."""

    def __init__(
        self, driver: str | type, *, silence_s: float = 0.25, rate_hz: float = 200.0, **options: Any
    ) -> None:
        """
        driver: its class, or its location: my_base.py:MyBase, my_package.bases:MyBase.
        silence_s: it is stopped after this long without a command [s].
        rate_hz: how often it is read, and at most written to [Hz].
        options: of the class: numbers, texts, lists.

        InvalidValueError: an invalid number. DriverError: the driver cannot be made; the message states why.
        """
        if not 0.0 < silence_s <= 1.0 or not 1.0 <= rate_hz <= 2000.0:
            raise InvalidValueError(
                f"expected silence_s above 0 and up to 1 s and rate_hz from 1 to 2000, got {silence_s!r:.60} "
                f"and {rate_hz!r:.60}"
            )
        self.silence_s = silence_s
        place = driver if isinstance(driver, str) else f"{inspect.getfile(driver)}:{driver.__qualname__}"
        config = Config(driver=place, options=options, silence_s=silence_s, rate_hz=rate_hz)
        self._number = 0
        self._child = Child("drivers.isolated", config, Order, Report, what=f"driver {place}")
        if self._child.report().num_joints:
            self.num_joints = self._child.report().num_joints

    @property
    def pid(self) -> int:
        """Id of the driver's process."""
        return self._child.pid

    def read(self) -> BaseState | ArmState:
        """Read the state. DriverError: the driver raised, is silent, or its process has ended."""
        report = self._child.report()
        if why := report.fault or self._child.ended:
            raise DriverError(f"{self._child.what}: {why}")
        if time.monotonic_ns() - report.t_ns > NS_PER_S:
            raise DriverError(f"{self._child.what}: no state for a second")
        state = {name: np.array(values) for name, values in report.state.items()}
        kind = ArmState if report.num_joints else BaseState
        return kind(t_ns=report.t_ns, **state)

    def write(self, command: Command) -> None:
        for kind, (of, field) in _COMMANDS.items():
            if isinstance(command, of):
                numbers = np.asarray(getattr(command, field), dtype=float)
                if not np.isfinite(numbers).all():
                    raise DriverError(f"expected finite numbers, got {numbers}")
                self._put(kind, numbers.tolist())
                return
        raise DriverError(
            f"expected a twist, a base pose, joint positions or velocities, got {type(command).__name__}"
        )

    def stop(self) -> None:
        if self._child.descriptor >= 0:
            self._put("", [])

    def close(self) -> None:
        """Stop the device and end its process; may be called twice."""
        self._child.close()

    def _put(self, kind: str, numbers: list[float]) -> None:
        if self._child.descriptor < 0:
            raise DriverError(f"{self._child.what} was closed")
        self._number += 1
        self._child.orders.put(Order(self._number, kind, numbers))


# ---- the driver's process ------------------------------------------------------------------------------


class _Loop:
    def __init__(self, config: Config, driver: Any, descriptor: int) -> None:
        self._config, self._driver = config, driver
        self._orders, self._reports = Newest(Order, descriptor), Newest(Report, descriptor, 2 * SLOT)
        self._number, self._command_ns, self._is_moving = 0, 0, False

    def run(self, life: LifeLine) -> None:
        try:
            while not life.is_cut():
                due_s = time.monotonic() + 1.0 / self._config.rate_hz
                self._execute()
                self._report()
                time.sleep(max(0.0, due_s - time.monotonic()))
        except Exception as error:  # any error of the driver
            fault = f"{type(error).__name__}: {error}"[:1000]
            self._reports.put(Report(t_ns=time.monotonic_ns(), fault=fault))
        finally:
            self._driver.stop()
            with contextlib.suppress(AttributeError):
                self._driver.close()

    def _execute(self) -> None:
        newest, now_ns = self._orders.get(), time.monotonic_ns()
        if newest is not None and newest[1].number != self._number:
            order = newest[1]
            self._number, self._command_ns = order.number, now_ns
            if order.kind:
                of, field = _COMMANDS[order.kind]
                self._driver.write(of(**{field: np.array(order.numbers)}))
                self._is_moving = True
                return
        elif not self._is_moving or now_ns - self._command_ns < self._config.silence_s * NS_PER_S:
            return
        self._driver.stop()
        self._is_moving = False

    def _report(self) -> None:
        state = self._driver.read()
        names = ("q", "dq") if isinstance(state, ArmState) else ("x_WB", "V_WB_B")
        numbers = {
            name: np.asarray(value, dtype=float).tolist()
            for name in names
            if (value := getattr(state, name)) is not None
        }
        num_joints = int(getattr(self._driver, "num_joints", 0))
        self._reports.put(Report(t_ns=int(state.t_ns), state=numbers, num_joints=num_joints))


def _made(config: Config) -> Any:
    place, _, name = config.driver.rpartition(":")
    if place.endswith(".py"):
        path = Path(place).resolve()
        sys.path.insert(0, str(path.parent))
        spec = importlib.util.spec_from_file_location(path.stem, path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[path.stem] = module
        spec.loader.exec_module(module)
    else:
        module = importlib.import_module(place)
    return getattr(module, name)(**config.options)


def main(text: str, descriptor: str) -> None:
    """config: a `Config` as JSON; descriptor: of the memory shared with the parent."""
    life = LifeLine()
    signal.signal(signal.SIGTERM, lambda *_: life.cut())
    config = msgspec.json.decode(text, type=Config)
    try:
        driver = _made(config)
        loop = _Loop(config, driver, int(descriptor))
    except Exception as error:
        sys.stdout.write(f"{type(error).__name__}: {error}")
        sys.exit(1)
    loop.run(life)
