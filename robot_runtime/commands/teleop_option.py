"""The option `--teleop NAME[:options]`, and the switch that arms a teleoperated robot."""

import sys
from collections.abc import Mapping
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from robot_runtime.core.arming import ArmingRules
from robot_runtime.errors import InvalidValueError

if TYPE_CHECKING:
    from robot_runtime.core.robot import Switch

ARM_KEY = "a"


def teleop_options(text: str | None, opened: ExitStack, of_file: Mapping[str, Any]) -> dict[str, Any]:
    """Return `teleop` and `teleop_config` of a session: from the command line, else from the robot's file."""
    if text is not None:
        from robot_runtime.robot_file.teleop import open_teleop

        return open_teleop(text, opened)
    return {name: of_file[name] for name in ("teleop", "teleop_config") if name in of_file}


def reads_terminal(teleop: object) -> bool:
    """Return whether a teleoperator reads the keys of the terminal itself."""
    return bool(getattr(teleop, "reads_terminal", False))


def arming_options(
    of_file: Mapping[str, Any], *, teleop: object, is_unasked: bool, reads_orders: bool
) -> dict[str, Any]:
    """Return the switch that arms the robot, as a session's options: that of its file, else a key; None with
    --yes.

    is_unasked: --yes. reads_orders: whether --orders reads the terminal that the key would need.
    InvalidValueError: the key could not be pressed.
    """
    from robot_runtime.robot.terminal_key import KeySwitch

    if is_unasked:
        return {"arm": None}
    arm: Switch = of_file.get("arm") or KeySwitch(ARM_KEY)
    if isinstance(arm, KeySwitch) and reads_terminal(teleop):
        return {"arm": None, "arming": ArmingRules()}  # it reads the keys: Enter arms
    if isinstance(arm, KeySwitch) and reads_orders:
        raise InvalidValueError(
            "--orders - reads lines where the key that arms the robot is read: name a pipe, --orders PIPE"
        )
    if isinstance(arm, KeySwitch) and not sys.stdin.isatty():
        raise InvalidValueError(
            "standard input is no terminal, on which the key that arms the robot could be pressed; --yes "
            "arms it without asking"
        )
    return {"arm": arm}
