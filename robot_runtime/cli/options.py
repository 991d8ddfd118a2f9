"""Option types and their rules: ranges of numbers, uses of paths; `check` applies them before a command runs.

A rule is part of the option's annotation, so that an invalid command is refused in one sentence:

    delay_ms: Milliseconds = 0.0
    json: Maybe[OutputFile] = None
"""

import math
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from tyro.conf import Positional, arg
from tyro.constructors import ConstructorRegistry, PrimitiveConstructorSpec, PrimitiveTypeInfo

from robot_runtime.core.method import METHOD_NAMES
from robot_runtime.error_text import EXTRA_OF, ExtraMissingError, reason
from robot_runtime.errors import InvalidValueError
from robot_runtime.transport.address import (
    address_to_listen,
    host_and_port,
    server_and_name,
)


class Rule(ABC):
    """Rule that the value of an option must satisfy."""

    @abstractmethod
    def complaint(self, value: Any) -> str | None:
        """Return what is wrong with the value, to follow the option's name; None if it is valid."""


@dataclass(frozen=True)
class Within(Rule):
    """Requires a finite number in [low, high]."""

    low: float
    high: float
    is_above: bool = False
    """Whether `low` itself is excluded."""
    multiple_of: int = 1
    """For whole numbers."""

    def complaint(self, value: float) -> str | None:
        is_inside = math.isfinite(value) and self.low <= value <= self.high
        if is_inside and not (self.is_above and value == self.low):
            is_multiple = self.multiple_of == 1 or value % self.multiple_of == 0
            return None if is_multiple else f"takes a multiple of {self.multiple_of}, got {value}"
        start = f"above {self.low:.15g} and up to" if self.is_above else f"from {self.low:.15g} to"
        return f"takes a number {start} {self.high:.15g}, got {value}"


@dataclass(frozen=True)
class Filled(Rule):
    """Requires at least one value."""

    def complaint(self, value: tuple[object, ...]) -> str | None:
        return None if value else "takes at least one value, got none"


@dataclass(frozen=True)
class AtMostOne(Rule):
    """Requires no value or one."""

    def complaint(self, value: tuple[object, ...]) -> str | None:
        return None if len(value) < 2 else f"takes at most one value, got {' '.join(map(str, value))}"


@dataclass(frozen=True)
class Read(Rule):
    """Requires an existing file or folder that can be read."""

    is_folder: bool = False

    def complaint(self, value: Path) -> str | None:
        what = "a folder" if self.is_folder else "a file"
        try:
            if not value.exists():
                return f"names {what} to read, and there is no {value}"
            if value.is_dir() != self.is_folder:
                return f"names {what} to read, and {value} is {'a file' if self.is_folder else 'a folder'}"
            next(value.iterdir(), None) if self.is_folder else value.open("rb").close()
        except OSError as error:
            return f"names {what} to read, and {value} cannot be read: {reason(error)}"
        return None


@dataclass(frozen=True)
class Written(Rule):
    """Requires a file or folder that can be written; a file's folder must exist and have free space."""

    is_folder: bool = False
    is_new: bool = False
    """Whether the path must not exist yet."""
    is_kept: bool = False
    """Whether an existing file is read instead."""
    endings: tuple[str, ...] = ()
    """Allowed file name endings; any if empty."""

    def complaint(self, value: Path) -> str | None:
        what = "a folder" if self.is_folder else "a file"
        if self.endings and value.suffix not in self.endings:
            return f"names {what} that ends in {' or '.join(self.endings)}, got {value}"
        try:
            if self.is_kept and value.exists():
                return Read(is_folder=self.is_folder).complaint(value)
            if self.is_new and value.exists():
                return f"names {what} to make, and {value} is there already"
            if value.exists() and value.is_dir() != self.is_folder:
                return f"names {what} to write, and {value} is {'a file' if self.is_folder else 'a folder'}"
            if value.exists() and not value.is_file() and not value.is_dir():
                return None  # a device or a pipe
            folder = _nearest(value) if self.is_folder else value.resolve().parent
            if not folder.is_dir():
                return f"names {what} to write, and {folder} is no folder"
            with tempfile.TemporaryFile(dir=folder) as file:
                file.write(bytes(_ROOM))
        except (OSError, ValueError) as error:
            return f"names {what} to write, and {value} cannot be written: {reason(error)}"
        return None


_ROOM = 4096
"""Size of a trial write [bytes], which fails on a full disk."""


@dataclass(frozen=True)
class Folder(Rule):
    """Requires a folder, which need not exist."""

    def complaint(self, value: Path) -> str | None:
        return f"names a folder, and {value} is a file" if value.is_file() else None


@dataclass(frozen=True)
class Address(Rule):
    """Requires a network address."""

    parse: Callable[[str], object]
    """Raises InvalidValueError."""

    def complaint(self, value: str) -> str | None:
        try:
            self.parse(value)
        except InvalidValueError as error:
            return f"is refused: {error}"
        return None


@dataclass(frozen=True)
class Parsed(Rule):
    """Requires text that a function can parse."""

    parse: Callable[[str], object]
    """Raises InvalidValueError, which states what is expected."""

    def complaint(self, value: str) -> str | None:
        try:
            self.parse(value)
        except InvalidValueError as error:
            return str(error)
        return None


T = TypeVar("T")
Maybe = Annotated[T | None, arg(help_behavior_hint="(optional)")]
"""Option without a default value."""
Several = Annotated[
    tuple[T, ...], arg(help_behavior_hint=lambda label: f"(default: {label})" if label else "(optional)")
]
"""Any number of values, or none."""
Some = Annotated[tuple[T, ...], Filled()]
"""One or more values."""

HouseholdTask = Literal["clear", "drawer", "fetch", "wipe"]
"""Tasks of the mobile robot."""
TaskName = Literal["track", "pick_place", "strike", "conveyor", HouseholdTask, "handover"]
"""All tasks: the first four are for the arm on a table, the last is for two arms."""
_TASKS = get_args(TaskName)
Task = Annotated[
    str,
    arg(
        help=f"What the robot does. On a table: {', '.join(_TASKS[:4])}. Mobile: {', '.join(_TASKS[4:8])}. "
        f"Two arms: {', '.join(_TASKS[8:])}."
    ),
]
MethodName = Annotated[
    str,
    arg(
        help="How action chunks are run. default: the method that the policy was trained for. auto: the one "
        f"that suits the policy and the measured delay. Or one of: {', '.join(METHOD_NAMES)}."
    ),
]
SHIPPED_POLICIES = (
    *("hold", "sine", *_TASKS),
    *(f"{task}-seeing" for task in _TASKS[4:8]),
    *(f"{task}-{recipe}" for task in _TASKS[:2] for recipe in ("offset", "masked", "lambda-mask")),
)
"""Names that `policies.load` knows, listed here so that help does not import it."""
SHIPPED = f"Shipped policies: {', '.join(SHIPPED_POLICIES)}."

Count = Annotated[int, Within(1, 1_000_000)]
AnyCount = Annotated[int, Within(0, 1_000_000)]
FramesPerSecond = Annotated[int, Within(1, 240)]
Steps = Annotated[int, Within(1, 100_000_000)]
Rows = Annotated[int, Within(1, 10_000)]
AnyRows = Annotated[int, Within(0, 10_000)]
Processes = Annotated[int, Within(1, 256)]
"""Or threads."""
Batch = Annotated[int, Within(1, 4096)]
Pixels = Annotated[int, Within(1, 4096)]
Seed = Annotated[int, Within(0, 2**31 - 1)]
Share = Annotated[float, Within(0, 1)]
RowError = Annotated[float, Within(1e-6, 10)]
Hertz = Annotated[float, Within(1, 10_000)]
Milliseconds = Annotated[float, Within(0, 3_600_000)]
HeartbeatMs = Annotated[float, Within(1, 60_000)]
Seconds = Annotated[float, Within(0.001, 1_000_000)]
Height = Annotated[float, Within(0, 3)]
ChestHeight = Annotated[float, Within(0.3, 3)]
"""Height of a camera that a person wears above the floor [m]."""
InputFile = Annotated[Path, Read()]
InputFolder = Annotated[Path, Read(is_folder=True)]
OutputFile = Annotated[Path, Written()]
PictureFile = Annotated[Path, Written(endings=(".png", ".svg", ".pdf"))]
OutputFolder = Annotated[Path, Written(is_folder=True)]
NewFolder = Annotated[Path, Written(is_folder=True, is_new=True)]
ZarrFolder = Annotated[Path, Written(is_folder=True, is_new=True, endings=(".zarr",))]
KeptFile = Annotated[Path, Written(is_kept=True)]
AnyFolder = Annotated[Path, Folder()]


def _keep(text: str) -> object:
    from robot_runtime.log.config import keep_of

    return keep_of(text)


KeepText = Annotated[str, Parsed(_keep)]
PolicyAddress = Annotated[str, Address(server_and_name)]
"""Address of a server, or of one of its policies."""
OwnAddress = Annotated[str, Address(address_to_listen)]
HostPort = Annotated[str, Address(host_and_port)]
PageAddress = Annotated[
    tuple[HostPort, ...] | None, AtMostOne(), arg(metavar="[HOST:PORT]", help_behavior_hint="(optional)")
]
"""None: no page; (): a page at the default address."""


def need(*modules: str, extras: Sequence[str] = ()) -> None:
    """Raise ExtraMissingError now if modules are missing that a command would import late.

    extras: the extras that the command needs, as several bring the same modules; those of `EXTRA_OF` if not
    given.
    """
    if missing := [name for name in modules if find_spec(name) is None]:
        theirs = (EXTRA_OF.get(name, name) for name in missing)
        raise ExtraMissingError(missing, extras or tuple(dict.fromkeys(theirs)))


def check(command: object) -> None:
    """Check all options of a command; InvalidValueError names the first invalid one."""
    assert is_dataclass(command)
    hints = get_type_hints(type(command), include_extras=True)
    for field in fields(command):
        value = getattr(command, field.name)
        if is_dataclass(value):
            check(value)
        else:
            check_option(option_name(field.name, hints[field.name]), hints[field.name], value)


def check_option(name: str, hint: object, value: object) -> None:
    """Check one option; InvalidValueError if it is invalid."""
    for rule, part in rules_for(hint, value):
        if (complaint := rule.complaint(part)) is not None:
            raise InvalidValueError(f"{name} {complaint}")


def check_words(kind: object, words: Sequence[str]) -> None:
    """Raise InvalidValueError for an option of many values that is given twice: only the last would count."""
    if not (isinstance(kind, type) and is_dataclass(kind)):
        return
    typed = [word.partition("=")[0].replace("_", "-") for word in words]
    for field_name, hint in get_type_hints(kind, include_extras=True).items():
        name = option_name(field_name, hint)
        if _takes_many(hint) and (times := typed.count(name)) > 1:
            raise InvalidValueError(
                f"{name} takes all its values at once, as in {name} A B; it is there {times} times"
            )


def _takes_many(hint: Any) -> bool:
    origin, inner = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return _takes_many(inner[0])
    if origin in (Union, UnionType):
        return any(map(_takes_many, inner))
    return origin is tuple and inner[-1] is ...


def option_name(name: str, hint: object) -> str:
    """Return the option as the user types it."""
    is_positional = Positional[int].__metadata__[0] in getattr(hint, "__metadata__", ())  # type: ignore[attr-defined]
    return name.upper() if is_positional else "--" + name.replace("_", "-")


def rules_for(hint: Any, value: Any) -> Iterator[tuple[Rule, Any]]:
    """Yield the rules of an annotation, each with the part of the value it applies to; none for None."""
    if value is None:
        return
    origin, inner = get_origin(hint), get_args(hint)
    if origin is Annotated:
        yield from ((rule, value) for rule in hint.__metadata__ if isinstance(rule, Rule))
        yield from rules_for(inner[0], value)
    elif origin in (Union, UnionType):
        yield from (found for each in inner if each is not NoneType for found in rules_for(each, value))
    elif origin is tuple:
        kinds = [inner[0]] * len(value) if inner[-1] is ... else inner
        yield from (found for kind, part in zip(kinds, value, strict=True) for found in rules_for(kind, part))


def _nearest(path: Path) -> Path:
    """Return the path, or its nearest parent that exists."""
    path = path.resolve()
    return next(each for each in (path, *path.parents) if each.exists())


def registry() -> ConstructorRegistry:
    """Return tyro's registry, which reads `T | None` as T; None is an option that is not given."""
    out = ConstructorRegistry()

    @out.primitive_rule
    def optional(info: PrimitiveTypeInfo) -> PrimitiveConstructorSpec[Any] | None:
        kinds = [each for each in get_args(info.type) if each is not NoneType]
        if info.type_origin not in (Union, UnionType) or len(kinds) != 1:
            return None
        spec = ConstructorRegistry.get_primitive_spec(PrimitiveTypeInfo.make(kinds[0], info.markers))
        assert isinstance(spec, PrimitiveConstructorSpec)
        to_text = spec.str_from_instance
        return replace(spec, str_from_instance=lambda value: [] if value is None else to_text(value))

    return out
