"""Whether and where a run is logged, and what its log records about it: `LogConfig`, `RunInfo`."""

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from robot_runtime.core.policy_info import PolicyInfo
from robot_runtime.core.values.schema import Schema
from robot_runtime.errors import InvalidValueError
from robot_runtime.log import DEFAULT_FOLDER, FORMAT
from robot_runtime.log.field_types import checks_of

MAX_PERIOD_NS = 60_000_000_000
"""Maximum control period [ns]."""


@dataclass(frozen=True)
class All:
    """Write everything, from start to end."""


@dataclass(frozen=True)
class LastSeconds:
    """Hold the newest seconds in memory, and write them when an operator orders it, a fault happens or an
    episode fails."""

    seconds: float = 30.0

    def __post_init__(self) -> None:
        if not 0.0 < self.seconds <= 3600.0:
            raise InvalidValueError(f"the seconds to keep are above 0, up to 3600, got {self.seconds}")


@dataclass(frozen=True)
class Nothing:
    """Write nothing: for a run that is only watched, on its page."""


Keep = All | LastSeconds | Nothing


def keep_of(text: str) -> Keep:
    """Parse the option's text: all, or last:30s. InvalidValueError: something else."""
    if text == "all":
        return All()
    found = re.fullmatch(r"last:(\d+(?:\.\d+)?)s?", text)
    if found is None:
        raise InvalidValueError(f"expected all, or last:30s for the newest 30 seconds, got {text!r:.100}")
    return LastSeconds(float(found[1]))


@dataclass(frozen=True, kw_only=True)
class LogConfig:
    """Where a run's log goes, and how much of it is kept."""

    folder: Path = DEFAULT_FOLDER
    """Folder with one file per run."""
    keep: Keep = All()
    max_bytes: int | None = 20_000_000_000
    """Maximum size of all logs in the folder; a new run removes the oldest. None: no limit."""
    max_age_s: float | None = None
    """Maximum age; a new run removes older logs. None: no limit."""
    jpeg_quality: int = 90
    """JPEG quality of the images, 1 to 100."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "folder", Path(self.folder))
        if not 1 <= self.jpeg_quality <= 100:
            raise InvalidValueError(f"jpeg_quality is 1 to 100, got {self.jpeg_quality}")
        for name in ("max_bytes", "max_age_s"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise InvalidValueError(f"{name} takes a number above 0, or None, got {value}")


@dataclass(frozen=True, kw_only=True)
class RunInfo:
    """What a log records about its run at the start."""

    task: str
    robot: str
    """Name of the robot."""
    schema: Schema
    """Schema of the robot: names the columns of states and commands."""
    policy: PolicyInfo
    control_period_ns: int
    """Time from one tick to the next [ns]."""
    started_wall_ns: int
    """Calendar time at the start of the log: since 1970, UTC [ns]."""
    started_ns: int
    """The same by the run's clock, which all other times here use [ns]."""
    is_part: bool = False
    """Whether it may begin in mid-run, as the last seconds before an event do."""
    is_virtual: bool = False
    """Whether that clock was a simulation's, in which a policy's delay is drawn."""
    method: str = ""
    """Method that ran its chunks, in words; the journal has it exactly."""
    seed: int = 0
    address: str = ""
    """Address of the policy's server."""
    model: str = ""
    """The robot's 3D model for pages: a file, or a name that `robot-runtime page --model` takes."""
    has_policy: bool = True
    """Whether a policy was asked; if not, a person drove alone, and `policy` declares what could be moved."""
    made_by: Mapping[str, Any] = field(default_factory=dict)
    """Date, command, commit and versions of the software."""
    format: int = FORMAT

    @property
    def offset_ns(self) -> int:
        """Offset from the run's clock to calendar time; 0 for a virtual one [ns]."""
        return 0 if self.is_virtual else self.started_wall_ns - self.started_ns

    @property
    def policy_hash(self) -> str:
        """SHA-256 of the policy's description."""
        return hashlib.sha256(json.dumps(self.policy.to_dict(), sort_keys=True).encode()).hexdigest()

    def to_json(self) -> str:
        """Encode as one text for the file."""
        plain = {**vars(self), "schema": self.schema.to_dict(), "policy": self.policy.to_dict()}
        return json.dumps({**plain, "policy_hash": self.policy_hash})

    @classmethod
    def from_json(cls, text: str) -> "RunInfo":
        """Inverse of `to_json`. InvalidValueError: not such a text, or of another version of the format."""
        try:
            data = json.loads(text)
            theirs = data["format"]
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise InvalidValueError(f"the log does not declare its run: {error}") from error
        if theirs != FORMAT:
            age = "an older" if isinstance(theirs, int) and theirs < FORMAT else "a newer"
            raise InvalidValueError(
                f"the log is of format {theirs!r:.60}, this version of robot-runtime reads format {FORMAT}: "
                f"it was written by {age} version, {_version(data)}, which reads it"
            )
        data.pop("policy_hash", None)
        known = {name: value for name, value in data.items() if name in cls.__dataclass_fields__}
        try:
            for name in ("schema", "policy"):
                if not isinstance(known[name], dict):
                    raise TypeError(f"expected names and values in {name}, got {known[name]!r:.60}")
            known["schema"] = Schema.from_dict(known["schema"])
            known["policy"] = PolicyInfo.from_dict(known["policy"])
            out = cls(**known)
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError, RecursionError) as error:
            raise InvalidValueError(
                f"the log's record of its run is damaged, and nothing can be read without it: {error!s:.300}"
            ) from error
        for name, check in checks_of(cls).items():
            if not check(getattr(out, name), {}):
                got = f"{getattr(out, name)!r:.100}"
                raise InvalidValueError(f"the log's record of its run is damaged: {name} is {got}")
        if not (0 < out.control_period_ns <= MAX_PERIOD_NS and out.started_wall_ns >= 0):
            raise InvalidValueError(
                f"expected a run with a control period of up to {MAX_PERIOD_NS} ns that began after 1970, "
                f"got {out.control_period_ns} ns and {out.started_wall_ns} ns"
            )
        return out

    @property
    def version(self) -> str:
        """Version of the runtime that wrote it."""
        return _version(vars(self))


def _version(data: Mapping[str, Any]) -> str:
    made_by = data.get("made_by")
    versions = made_by.get("versions") if isinstance(made_by, Mapping) else None
    known = versions.get("robot-runtime") if isinstance(versions, Mapping) else None
    return f"robot-runtime {known if isinstance(known, str) else '(unknown)'}"
