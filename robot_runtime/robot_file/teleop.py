"""Teleoperators from a table or a command line: `made_teleop`, `teleop_table`.

    [operator]
    teleop = { driver = "gamepad", speed = 0.3, yaw_deg = 180 }         --teleop gamepad:speed=0.3,yaw_deg=180

Keys of `TeleopConfig` (scales, frames, speeds for any device) are in the same table as those of the device.
"""

import tomllib
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import fields
from typing import Any

from robot_runtime.core.values.action import NS_PER_S
from robot_runtime.errors import InvalidValueError, placed
from robot_runtime.robot_file.make import Maker
from robot_runtime.robot_file.names import TELEOPERATORS
from robot_runtime.teleop.config import OnRelease, TeleopConfig
from robot_runtime.teleop.watched import check_teleoperator

_STALE = "stale_s"


def made_teleop(maker: Maker, where: str, table: Mapping[str, Any]) -> dict[str, Any]:
    """Make `teleop` and `teleop_config` of a session; raises the errors of both, with the place."""
    names = {_STALE if each.name == "stale_ns" else each.name for each in fields(TeleopConfig)}
    config = _config(where, {key: value for key, value in table.items() if key in names})
    teleop = maker.make(where, {key: value for key, value in table.items() if key not in names})
    try:
        check_teleoperator(teleop)
    except InvalidValueError as error:
        raise placed(error, where) from None
    return {"teleop": teleop, "teleop_config": config}


def open_teleop(text: str, opened: ExitStack) -> dict[str, Any]:
    """Make the same from a command line; `opened` closes it."""
    maker = Maker(opened, None)
    return made_teleop(maker, "--teleop", teleop_table(text))


def teleop_table(text: str) -> dict[str, Any]:
    """Parse `NAME:key=value,key.key=value`, or `file.py:Class:key=value`, into a table."""
    name, _, options = text.partition(":")
    if name not in TELEOPERATORS and options and "=" not in options.partition(":")[0]:
        kind, _, options = options.partition(":")
        name = f"{name}:{kind}"
    table: dict[str, Any] = {"driver": name}
    for option in _split(options):
        key, equals, value = option.partition("=")
        path = key.strip().split(".")
        if not equals or not all(path) or path == ["driver"]:
            raise InvalidValueError(
                f"--teleop takes NAME:key=value,key=value, got {option!r} in {text!r:.100}"
            )
        at = table
        for each in path[:-1]:
            at = at.setdefault(each, {})
            if not isinstance(at, dict):
                raise InvalidValueError(f"--teleop: {option!r}: {each} is no table")
        at[path[-1]] = _value(value)
    return table


def _split(options: str) -> list[str]:
    """Split at commas outside brackets."""
    out, depth = [""], 0
    for character in options:
        depth += (character in "[{") - (character in "]}")
        if character == "," and depth == 0:
            out.append("")
        else:
            out[-1] += character
    return [each for each in out if each.strip()]


def _value(text: str) -> Any:
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except (tomllib.TOMLDecodeError, ValueError, RecursionError):
        return text.strip()


def _config(where: str, given: dict[str, Any]) -> TeleopConfig:
    options = dict(given)
    if "on_release" in options:
        try:
            options["on_release"] = OnRelease(options["on_release"])
        except ValueError:
            kinds = " or ".join(each.value for each in OnRelease)
            raise InvalidValueError(
                f"{where}.on_release is {kinds}, got {options['on_release']!r:.60}"
            ) from None
    if _STALE in options:
        stale = options.pop(_STALE)
        if isinstance(stale, bool) or not isinstance(stale, int | float) or not 0.01 <= stale <= 1.0:
            raise InvalidValueError(f"{where}.{_STALE} is from 0.01 to 1 s, got {stale!r:.60}")
        options["stale_ns"] = round(stale * NS_PER_S)
    try:
        return TeleopConfig(**options)
    except InvalidValueError as error:
        raise placed(error, where) from None
