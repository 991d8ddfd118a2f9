"""`--teleop NAME[:options]` of the commands, and who arms a robot that somebody leads."""

import sys
from collections.abc import Mapping
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from robot_runtime.core.arming import ArmingRules
from robot_runtime.errors import InvalidValueError

if TYPE_CHECKING:
    from robot_runtime.core.robot import Switch

ARM_KEY = "a"


def teleop_options(text: str | None, opened: ExitStack, said: Mapping[str, Any]) -> dict[str, Any]:
    """`teleop` and `teleop_config` of a session: as the command line says, else as the robot's file does."""
    if text is not None:
        from robot_runtime.robot_file.teleop import open_teleop

        return open_teleop(text, opened)
    return {name: said[name] for name in ("teleop", "teleop_config") if name in said}


def reads_terminal(teleop: object) -> bool:
    """Whether a teleoperator reads the keys of the terminal itself."""
    return bool(getattr(teleop, "reads_terminal", False))


def arming_options(
    said: Mapping[str, Any], *, teleop: object, is_unasked: bool, reads_orders: bool
) -> dict[str, Any]:
    """What arms the robot, as options of a session: what its file says, else a key; nothing with --yes.

    is_unasked: --yes. reads_orders: whether lines are read where the key would be.
    InvalidValueError: nobody could press it.
    """
    from robot_runtime.robot.terminal_key import KeySwitch

    if is_unasked:
        return {"arm": None}
    arm: Switch = said.get("arm") or KeySwitch(ARM_KEY)
    if isinstance(arm, KeySwitch) and reads_terminal(teleop):
        return {"arm": None, "arming": ArmingRules()}  # its keys are hers: Enter arms
    if isinstance(arm, KeySwitch) and reads_orders:
        raise InvalidValueError(
            "--orders - reads lines where the key that arms the robot is read: name a pipe, --orders PIPE"
        )
    if isinstance(arm, KeySwitch) and not sys.stdin.isatty():
        raise InvalidValueError(
            "standard input is no terminal: nobody could press the key that arms the robot; with --yes "
            "nobody is asked"
        )
    return {"arm": arm}
