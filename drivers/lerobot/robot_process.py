"""The process that speaks to a robot or a teleoperator of LeRobot's: its state out, its newest targets in.

    nothing told ── first order ──► following ── a part's order is None, silence ──► that part holds
                                        │                                          where it is measured
                                        └── life line cut ──► everything holds, disconnect

Every cycle reads an observation, then sends one action, complete: parts that were never told anything are
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
    """What the process does again and again with one device."""

    def __init__(self, config: DeviceConfig, device: Any, descriptor: int, *, is_read_only: bool) -> None:
        """is_read_only: a teleoperator. RefusedError: its features do not fit the parts."""
        self._config, self._device, self._is_read_only = config, device, is_read_only
        self._orders = Newest(DeviceOrder, descriptor)
        self._reports: Newest[DeviceReport] = Newest(DeviceReport, descriptor, 2 * SLOT)
        measured = device.action_features if is_read_only else device.observation_features
        told = _numbers_of(device.action_features)
        try:
            tables = config.parts or tables_from_features(told, known_of(config, device))
            self._numbers = PartNumbers(
                tables,
                measured=_numbers_of(measured),
                told=None if is_read_only else told,
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
        self._places: dict[str, Numbers] = {name: [0.0, 0.0, 0.0] for name in self._bases}
        self._estimates = {name: SpeedEstimate() for name in tables}
        self._targets: dict[str, Numbers] = {}
        """Of every part, once anything has been told."""
        self._held: set[str] = set()
        self._now: dict[str, Numbers] = {}
        self._number, self._told_ns = 0, 0
        self._seen_ns = time.monotonic_ns()
        self._fault = ""

    def run(self, life: LifeLine) -> None:
        """Until the life line is cut."""
        period_ns = round(NS_PER_S / self._config.rate_hz)
        due_ns = time.monotonic_ns()
        while not life.is_cut():
            self.look()
            due_ns += period_ns
            now_ns = time.monotonic_ns()
            if due_ns > now_ns:
                time.sleep((due_ns - now_ns) / NS_PER_S)
            else:
                due_ns = now_ns  # what is missed is skipped

    def look(self) -> None:
        """One cycle. What the device raises is tried again until it has lasted for `state_timeout_s`; then
        it is told to hold, again and again, in case it hears."""
        if self._fault:
            self._rest()
            return
        try:
            self._observe()
            self._obey()
        except Exception as error:  # of LeRobot, a plug-in, or the wires beneath them: whatever it is
            silent_ns = time.monotonic_ns() - self._seen_ns
            why = f"{type(error).__name__}: {' '.join(str(error).split())}"[:1000]
            logger.warning("%s: %s", self._config.type, why)
            if silent_ns > self._config.state_timeout_s * NS_PER_S:
                self._fault = f"no state for {silent_ns / NS_PER_S:.2f} s: {why}"
                self._reports.put(DeviceReport(t_ns=self._seen_ns, parts=self._now, fault=self._fault))
                self._rest()

    def end(self) -> None:
        """Hold, and give the device back."""
        self._rest()
        disconnect(self._device)

    def _rest(self) -> None:
        """Everything holds, if anything has ever been told."""
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
            raise ValueError(f"it measures {numbers}, and not all of that is finite")
        for part, q in numbers.items():
            if part in self._bases:
                duration_s = (t_ns - self._seen_ns) / NS_PER_S if self._now else 0.0
                self._places[part] = add_up(self._places[part], q, duration_s)
                speeds[part] = q
            elif part not in speeds:
                speeds[part] = self._estimates[part].take(t_ns, q)
        self._now, self._seen_ns = numbers | self._places, t_ns
        self._reports.put(DeviceReport(t_ns=t_ns, parts=self._now, speeds=speeds))
        self._show(observation, t_ns)

    def _show(self, observation: Mapping[str, Any], t_ns: int) -> None:
        """Pictures that are new: by their stamp where LeRobot keeps one, else by what is in them."""
        for name, pictures in self._pictures.items():
            picture = observation[name]
            stamp_s = getattr(getattr(self._device, "cameras", {}).get(name), "latest_timestamp", None)
            before_s, before = self._shown.get(name, (None, None))
            is_same = stamp_s == before_s if stamp_s is not None else np.array_equal(picture, before)
            if not is_same:
                self._shown[name] = stamp_s, picture
                pictures.put(np.asarray(picture), t_ns if stamp_s is None else _ours_ns(stamp_s))

    def _obey(self) -> None:
        newest = self._orders.get()
        if newest is None or self._is_read_only:
            return
        order, now_ns = newest[1], time.monotonic_ns()
        if order.number != self._number:
            self._take(order, now_ns)
        elif now_ns - self._told_ns > self._config.silence_s * NS_PER_S:
            self._hold(set(self._targets) - self._held)
        self._send()

    def _take(self, order: DeviceOrder, now_ns: int) -> None:
        self._number, self._told_ns = order.number, now_ns
        self._hold({part for part in self._now if part not in self._targets})
        for part, numbers in order.parts.items():
            if numbers is not None:
                self._targets[part] = numbers
                self._held.discard(part)
            elif part not in self._held:
                self._hold({part})

    def _hold(self, parts: set[str]) -> None:
        """Joints where they are measured, bases at rest; a gripper holds on to what it holds."""
        for part in parts:
            if part in self._grippers and part in self._targets:
                continue
            self._targets[part] = [0.0, 0.0, 0.0] if part in self._bases else self._now[part]
        self._held |= parts

    def _send(self) -> None:
        self._device.send_action(self._numbers.action(self._targets))


def _numbers_of(features: Mapping[str, Any]) -> list[str]:
    if isinstance(names := features.get("names"), Mapping):  # as its gamepad says them: one array
        return list(names)
    return [name for name, kind in features.items() if not isinstance(kind, tuple)]


def _cameras_of(features: Mapping[str, Any]) -> dict[str, tuple[int, int]]:
    """Colour pictures among features: (height, width)."""
    return {
        name: (kind[0], kind[1])
        for name, kind in features.items()
        if isinstance(kind, tuple) and len(kind) == 3 and kind[2] == 3
    }


def _ours_ns(stamp_s: float) -> int:
    """From LeRobot's clock to ours."""
    return round(stamp_s * NS_PER_S) + CLOCK_NS


def main(text: str, descriptor: str) -> None:
    """config: a `DeviceConfig` as JSON; descriptor: of the memory shared with the parent."""
    run_device(text, int(descriptor), is_read_only=False)


def run_device(text: str, descriptor: int, *, is_read_only: bool) -> None:
    """As `main`; of a teleoperator too."""
    config = msgspec.json.decode(text, type=DeviceConfig)
    run_own(
        "teleoperator" if is_read_only else "robot",
        config.type,
        config.config,
        config.plugins,
        lambda device: DeviceLoop(config, device, descriptor, is_read_only=is_read_only),
    )
