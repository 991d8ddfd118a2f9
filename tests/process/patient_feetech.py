"""Named by `plugins`: LeRobot waits for servos longer than 50 ms, as a busy machine keeps them waiting."""

from typing import Any

from lerobot.motors.feetech import feetech

PATIENCE_MS = 1500.0
"""Shorter than a robot may be silent: an answer that is lost is asked for again before it counts as that."""


def wait_longer(port: Any, packet_length: int) -> None:
    port.packet_start_time = port.getCurrentTime()
    port.packet_timeout = PATIENCE_MS


feetech.patch_setPacketTimeout = wait_longer
