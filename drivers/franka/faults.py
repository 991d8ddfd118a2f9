"""Messages and logs for a Franka arm that cannot be set up, or stops."""

import csv
import logging
import re
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from drivers.franka.messages import ArmConfig, ArmReport

logger = logging.getLogger(__name__)

WHEELS = "https://timschneider42.github.io/franky/whl/by-robot-server-version"


def explained(error: Exception, config: ArmConfig, franky: Any) -> str:
    """Describe why a robot could not be set up, and the fix."""
    if isinstance(error, franky.IncompatibleVersionException):
        found = re.search(r"server version:? (\d+)", str(error), re.IGNORECASE)
        return (
            f"{error}. The wheel of PyPI does not fit the robot's system; this one does (docs/franka.md): "
            "pip install --force-reinstall --no-deps franky-control "
            f"--extra-index-url {WHEELS}/{found[1] if found else 'SERVER_VERSION'}/"
        )
    if isinstance(error, franky.RealtimeException):
        return (
            f"{error} FCI needs a kernel with PREEMPT_RT: without, packets come late and the robot stops. "
            "To continue anyway, as in simulation: needs_real_time = false in its table of the file, "
            "or FrankaArm(..., needs_real_time=False)"
        )
    return f"{type(error).__name__}: {error}"


def write_log(config: ArmConfig, reports: Iterable[ArmReport]) -> Path:
    """Write the last second before a fault as CSV; return its path, even if that failed."""
    path = Path(config.log_folder) / f"franka-{config.host}-{time.strftime('%Y%m%d-%H%M%S')}.csv"
    vectors = ("q", "dq", "tau_ext", "sent")
    try:
        with path.open("w", newline="") as file:
            writer = csv.writer(file)
            heads = [f"{vector}_{i + 1}" for vector in vectors for i in range(7)]
            writer.writerow(["t_ns", "robot_time_ns", "mode", "success_rate", *heads])
            for r in reports:
                numbers = [*r.q, *r.dq, *r.tau_ext, *(r.sent or [float("nan")] * 7)]
                writer.writerow([r.t_ns, r.robot_time_ns, r.mode, r.success_rate, *numbers])
    except OSError as error:
        logger.error("the last second was not written to %s: %s", path, error)
    return path
