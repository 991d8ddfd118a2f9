"""The process that communicates with a robot or teleoperator of LeRobot: its state out, its targets in.

    no command ─── first order ──► following ── a part's order is None, silence ──► that part holds
                                        │                                          where it is measured
                                        └── life line cut ──► everything holds, disconnect

Every cycle reads an observation, then sends one action, complete: parts that were never commanded are
held where they were when the first order came.
"""

import contextlib
import logging
import time
from collections.abc import Callable, Mapping
from typing import Any

import msgspec
import numpy as np

from drivers.child import SLOT, LifeLine, Newest
from drivers.lerobot.known import known_of
from drivers.lerobot.loading import CLOCK_NS, RefusedError, disconnect
from drivers.lerobot.messages import DeviceConfig, DeviceOrder, DeviceReport, Facts
from drivers.lerobot.own_process import run_own
from drivers.lerobot.part_numbers import PartNumbers, SpeedEstimate, add_up
from drivers.lerobot.pictures import Pictures
from drivers.lerobot.tables import Base, Gripper, Numbers, tables_from_features
from robot_runtime.core.values.action import NS_PER_S

logger = logging.getLogger(__name__)


class DeviceLoop:
    """The loop of the process with one device."""

    def __init__(self, config: DeviceConfig, device: Any, descriptor: int, *, is_read_only: bool) -> None:
        """is_read_only: a teleoperator. RefusedError: its features do not fit the parts."""
        self._config, self._device, self._is_read_only = config, device, is_read_only
        self._orders = Newest(DeviceOrder, descriptor)
        self._reports: Newest[DeviceReport] = Newest(DeviceReport, descriptor, 2 * SLOT)
        measured = device.action_features if is_read_only else device.observation_features
        commanded = _numbers_of(device.action_features)
        try:
            tables = config.parts or tables_from_features(commanded, known_of(config, device))
            self._numbers = PartNumbers(
                tables,
                measured=_numbers_of(measured),
                commanded=None if is_read_only else commanded,
                others=config.others,
            )
        except ValueError as error:
            raise RefusedError(str(error)) from None
        cameras = {} if is_read_only else _cameras_of(measured)
        self.facts = Facts(parts=tables, cameras=cameras)
        largest = max(cameras.values(), key=lambda size: size[0] * size[1], default=(1, 1))
        self._pictures = {
            name: Pictures(descriptor, size, place=largest, index=i)
            for i, (name, size) in enumerate(cameras.items())
        }
        self._shown: dict[str, tuple[float | None, Any]] = {}
        self._bases = {name for name, table in tables.items() if isinstance(table, Base)}
        self._grippers = {name for name, table in tables.items() if isinstance(table, Gripper)}
        self._poses: dict[str, Numbers] = {name: [0.0, 0.0, 0.0] for name in self._bases}
        self._estimates = {name: SpeedEstimate() for name in tables}
        self._targets: dict[str, Numbers] = {}
        """Targets of every part, once anything was commanded."""
        self._held: set[str] = set()
        self._now: dict[str, Numbers] = {}
        self._number, self._command_ns = 0, 0
        self._seen_ns = time.monotonic_ns()
        self._fault = ""

    def run(self, life: LifeLine) -> None:
        """Run until the life line is cut."""
        period_ns = round(NS_PER_S / self._config.rate_hz)
        due_ns = time.monotonic_ns()
        while not life.is_cut():
            self.look()
            due_ns += period_ns
            now_ns = time.monotonic_ns()
            if due_ns > now_ns:
                time.sleep((due_ns - now_ns) / NS_PER_S)
            else:
                due_ns = now_ns  # missed cycles are skipped

    def look(self) -> None:
        """Run one cycle. After an error the device is retried for `state_timeout_s`; then
        it is commanded to hold in every cycle, in case it still responds."""
        if self._fault:
            self._rest()
            return
        try:
            self._observe()
            self._execute()
        except Exception as error:  # any error of LeRobot, a plug-in, or the connection
            silent_ns = time.monotonic_ns() - self._seen_ns
            why = f"{type(error).__name__}: {' '.join(str(error).split())}"[:1000]
            logger.warning("%s: %s", self._config.type, why)
            if silent_ns > self._config.state_timeout_s * NS_PER_S:
                self._fault = f"no state for {silent_ns / NS_PER_S:.2f} s: {why}"
                self._reports.put(DeviceReport(t_ns=self._seen_ns, parts=self._now, fault=self._fault))
                self._rest()

    def end(self) -> None:
        """Hold, and disconnect the device."""
        self._rest()
        disconnect(self._device)

    def _rest(self) -> None:
        """Make everything hold, if anything was ever commanded."""
        if self._targets:
            with contextlib.suppress(Exception):  # of a device that may be gone
                self._hold(set(self._now) - self._held)
                self._send()

    def _observe(self) -> None:
        before_ns = time.monotonic_ns()
        read: Callable[[], Any] = (
            self._device.get_action if self._is_read_only else self._device.get_observation
        )
        observation = read()
        t_ns = (before_ns + time.monotonic_ns()) // 2
        numbers, speeds = self._numbers.read(observation), self._numbers.speeds(observation)
        if not all(np.isfinite(each).all() for each in (*numbers.values(), *speeds.values())):
            raise ValueError(f"expected finite measurements, got {numbers}")
        for part, q in numbers.items():
            if part in self._bases:
                duration_s = (t_ns - self._seen_ns) / NS_PER_S if self._now else 0.0
                self._poses[part] = add_up(self._poses[part], q, duration_s)
                speeds[part] = q
            elif part not in speeds:
                speeds[part] = self._estimates[part].take(t_ns, q)
        self._now, self._seen_ns = numbers | self._poses, t_ns
        self._reports.put(DeviceReport(t_ns=t_ns, parts=self._now, speeds=speeds))
        self._show(observation, t_ns)

    def _show(self, observation: Mapping[str, Any], t_ns: int) -> None:
        """Write new images, by their stamp where LeRobot keeps one, else by their content."""
        for name, pictures in self._pictures.items():
            picture = observation[name]
            stamp_s = getattr(getattr(self._device, "cameras", {}).get(name), "latest_timestamp", None)
            before_s, before = self._shown.get(name, (None, None))
            is_same = stamp_s == before_s if stamp_s is not None else np.array_equal(picture, before)
            if not is_same:
                self._shown[name] = stamp_s, picture
                pictures.put(np.asarray(picture), t_ns if stamp_s is None else _ours_ns(stamp_s))

    def _execute(self) -> None:
        newest = self._orders.get()
        if newest is None or self._is_read_only:
            return
        order, now_ns = newest[1], time.monotonic_ns()
        if order.number != self._number:
            self._take(order, now_ns)
        elif now_ns - self._command_ns > self._config.silence_s * NS_PER_S:
            self._hold(set(self._targets) - self._held)
        self._send()

    def _take(self, order: DeviceOrder, now_ns: int) -> None:
        self._number, self._command_ns = order.number, now_ns
        self._hold({part for part in self._now if part not in self._targets})
        for part, numbers in order.parts.items():
            if numbers is not None:
                self._targets[part] = numbers
                self._held.discard(part)
            elif part not in self._held:
                self._hold({part})

    def _hold(self, parts: set[str]) -> None:
        """Hold joints where they are measured and bases at rest; a gripper keeps its grip."""
        for part in parts:
            if part in self._grippers and part in self._targets:
                continue
            self._targets[part] = [0.0, 0.0, 0.0] if part in self._bases else self._now[part]
        self._held |= parts

    def _send(self) -> None:
        self._device.send_action(self._numbers.action(self._targets))


def _numbers_of(features: Mapping[str, Any]) -> list[str]:
    if isinstance(names := features.get("names"), Mapping):  # as its gamepad reports them: one array
        return list(names)
    return [name for name, kind in features.items() if not isinstance(kind, tuple)]


def _cameras_of(features: Mapping[str, Any]) -> dict[str, tuple[int, int]]:
    """Return the colour images among features: (height, width)."""
    return {
        name: (kind[0], kind[1])
        for name, kind in features.items()
        if isinstance(kind, tuple) and len(kind) == 3 and kind[2] == 3
    }


def _ours_ns(stamp_s: float) -> int:
    """Convert LeRobot's clock to the monotonic clock."""
    return round(stamp_s * NS_PER_S) + CLOCK_NS


def main(text: str, descriptor: str) -> None:
    """config: a `DeviceConfig` as JSON; descriptor: of the memory shared with the parent."""
    run_device(text, int(descriptor), is_read_only=False)


def run_device(text: str, descriptor: int, *, is_read_only: bool) -> None:
    """As `main`; also for a teleoperator."""
    config = msgspec.json.decode(text, type=DeviceConfig)
    run_own(
        "teleoperator" if is_read_only else "robot",
        config.type,
        config.config,
        config.plugins,
        lambda device: DeviceLoop(config, device, descriptor, is_read_only=is_read_only),
    )
