"""Makes the drivers that a robot's file describes: `Maker`."""

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from robot_runtime.error_text import sentence
from robot_runtime.errors import InvalidValueError, RobotRuntimeError, nearest, placed
from robot_runtime.robot_file.check import Table, check_options, of_driver
from robot_runtime.robot_file.names import TELEOP, driver_named
from robot_runtime.user_code import UserCodeError, of_user

Failures = dict[str, RobotRuntimeError]
"""Place in the file, as `parts.arm` -> why it could not be made."""


class LacksDeviceError(InvalidValueError):
    """A device that it needs has failed, which is reported elsewhere."""


class Maker:
    """Makes the objects that tables describe, and has them closed at the end."""

    def __init__(
        self, opened: contextlib.ExitStack, folder: Path | None, failed: Failures | None = None
    ) -> None:
        """
        folder: of the robot file; None: the user typed the name.
        failed: where `attempt` keeps failures; None: it raises them.
        """
        self.devices: dict[str, Any] = {}
        self._opened, self._folder, self._failed = opened, folder, failed

    @contextlib.contextmanager
    def attempt(self, where: str) -> Iterator[None]:
        """Keep a failure, if failures are kept."""
        try:
            yield
        except RobotRuntimeError as error:
            if self._failed is None:
                raise
            self._failed[where] = error

    def make(self, where: str, table: Table) -> Any:
        """Make the driver, or return the device that it names. Raises the driver's errors, with the place."""
        text = table["driver"]
        if text.startswith("@"):
            return self._device(where, text)
        try:
            return self._made(where, text, table)
        except ModuleNotFoundError as error:
            if (missing := sentence(error)) is None:
                raise
            raise InvalidValueError(f"{where}: {missing}") from None

    def _made(self, where: str, text: str, table: Table) -> Any:
        kind = TELEOP if where.endswith(TELEOP) else where.partition(".")[0]
        try:
            driver = driver_named(text, self._folder, kind)
        except InvalidValueError as error:
            raise placed(error, where) from None
        options = {
            key: self._value(f"{where}.{key}", value) for key, value in of_driver(where, table).items()
        }
        check_options(where, text, driver, options)
        try:
            made = driver(**options)
            if callable(close := getattr(made, "close", None)):
                self._opened.callback(close)
            if callable(wait := getattr(made, "wait_until_ready", None)):
                wait()  # a driver that connects in the background reports here that nothing answers
        except RobotRuntimeError as error:
            raise placed(error, where) from error
        except (TypeError, ValueError, OverflowError) as error:
            raise InvalidValueError(f"{where}: {text} does not take this: {error}") from error
        except ModuleNotFoundError:
            raise
        except Exception as error:
            trace = of_user(error) or error.__traceback__
            raise UserCodeError(f"{where}: {text}", error, trace) from None
        return made

    def _value(self, where: str, value: Any) -> Any:
        if isinstance(value, str) and value.startswith("@"):
            return self._device(where, value)
        return value

    def _device(self, where: str, text: str) -> Any:
        name, *attributes = text[1:].split(".")
        if f"devices.{name}" in (self._failed or {}):
            raise LacksDeviceError(f"{where} needs [devices.{name}], which failed")
        if name not in self.devices:
            raise InvalidValueError(
                f"{where} is {text!r}, and there is no [devices.{name}]{nearest(name, self.devices)}"
            )
        found = self.devices[name]
        for attribute in attributes:
            if isinstance(found, Mapping) and attribute in found:
                found = found[attribute]
            elif not attribute.startswith("_") and hasattr(found, attribute):
                found = getattr(found, attribute)
            else:
                has = list(found) if isinstance(found, Mapping) else _public(found)
                raise InvalidValueError(
                    f"{where} is {text!r}, and {type(found).__name__} has no {attribute!r}"
                    f"{nearest(attribute, has)}"
                )
        return found


def _public(found: object) -> list[str]:
    return [name for name in dir(found) if not name.startswith("_")]
