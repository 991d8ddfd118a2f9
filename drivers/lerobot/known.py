"""Units of a LeRobot robot, from its type, its configuration and its calibration."""

import math
from typing import Any, Literal

from drivers.lerobot.messages import DeviceConfig
from drivers.lerobot.tables import Known, Unit

_ALWAYS_DEGREES = ("openarm_", "bi_openarm_", "rebot_b601_", "bi_rebot_b601_")
_BY_USE_DEGREES = ("so100_", "so101_", "bi_so_", "koch_", "omx_", "lekiwi")


def known_of(config: DeviceConfig, device: Any) -> Known:
    """Return the user's settings, else those of the type; for types not in the lists there are none."""
    ranges = ranges_of(device) | config.joint_ranges
    angle_unit: Literal["deg"] | None = "deg" if config.type.startswith("lekiwi") else None
    unit = config.joint_unit or _unit(config.type, getattr(device, "config", None))
    return Known(unit=unit, ranges=ranges, stroke_m=config.stroke_m, angle_unit=angle_unit)


def _unit(name: str, settings: Any) -> Unit | None:
    if name.startswith(_ALWAYS_DEGREES):
        return "deg"
    if not name.startswith(_BY_USE_DEGREES):
        return None
    for part in (settings, getattr(settings, "left_arm_config", None)):
        use_degrees = getattr(part, "use_degrees", None)
        if use_degrees is not None:
            return "deg" if use_degrees else "percent"
    return None


def ranges_of(device: Any) -> dict[str, tuple[float, float]]:
    """Return the angles of -100 % and 100 % from the middle [rad], by the calibration of motors on a bus."""
    out: dict[str, tuple[float, float]] = {}
    arms = {"": device} | {f"{side}_": getattr(device, f"{side}_arm", None) for side in ("left", "right")}
    for side, arm in arms.items():
        bus, calibration = getattr(arm, "bus", None), getattr(arm, "calibration", None)
        steps = getattr(bus, "model_resolution_table", None)
        if not (bus and calibration and steps):
            continue
        for name, motor in bus.motors.items():
            known = calibration.get(name)
            if known is None or known.drive_mode or motor.model not in steps:
                continue
            half = (known.range_max - known.range_min) / 2 * math.tau / (steps[motor.model] - 1)
            out[side + name] = (-half, half)
    return out
