"""Checks that a Franka's control box answers, before a slower connection is started."""

import socket

from robot_runtime.errors import DriverError


def check_somebody_answers(host: str, port: int, what: str, timeout_s: float = 1.5) -> None:
    """DriverError: no server listens there."""
    try:
        socket.create_connection((host, port), timeout_s).close()
    except OSError as error:
        raise DriverError(
            f"{what}: no answer from {host}, TCP port {port}, within {timeout_s:g} s ({error}). Is the "
            "address right (ping it), is the robot on, and is FCI activated in Desk?"
        ) from None
