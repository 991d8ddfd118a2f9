"""The process around a LeRobot device: `run_own`."""

import os
import signal
import sys
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import msgspec

from drivers.child import LifeLine
from drivers.lerobot.loading import Kind, RefusedError, connect, disconnect, make_device
from drivers.lerobot.messages import Facts


class Loop(Protocol):
    """The loop of a device's process."""

    facts: Facts

    def run(self, life: LifeLine) -> None: ...

    def end(self) -> None:
        """Disconnect; called however the loop ends."""
        ...


def run_own(
    kind: Kind, name: str, plain: dict[str, Any], plugins: Sequence[str], loop_of: Callable[[Any], Loop]
) -> None:
    """Make the device, connect it, report its properties to the parent, and run its loop until the life line
    is cut.

    name, plain, plugins: as for `make_device`. loop_of: makes the loop of the connected device; RefusedError.
    """
    life = LifeLine()
    signal.signal(signal.SIGTERM, lambda *_: life.cut())
    answer = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # a plug-in's output goes to the log, and must not fill the pipe
    device = None
    try:
        device = make_device(kind, name, plain, plugins)
        connect(kind, name, device)
        loop = loop_of(device)
    except RefusedError as error:
        if device is not None:
            disconnect(device)
        answer.write(str(error))
        answer.close()
        sys.exit(1)
    answer.write(msgspec.json.encode(loop.facts).decode())
    answer.flush()
    try:
        loop.run(life)
    finally:
        loop.end()
