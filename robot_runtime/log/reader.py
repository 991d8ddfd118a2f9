"""A run as its log has it: `RunLog`, of a file that was closed, cut, or is still being written.

    with RunLog.open("outputs/runs/...mcap") as log: ...
    for row in log.ticks(): row.state, row.tick.command, row.tick.sent, row.tick.mode

All times are of the run's own clock [ns], as everywhere else; `info.offset_ns` leads to the calendar's.
"""

import json
import logging
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from robot_runtime.core.journal import Asked, Began, Configuration, Entry, Looked, PartCame, Ticked
from robot_runtime.core.orders import EpisodeMark, Outcome, TakenOrder
from robot_runtime.core.plan.answers import Splice
from robot_runtime.core.tick import Tick
from robot_runtime.core.values.state import Observation, RobotState
from robot_runtime.errors import InvalidValueError
from robot_runtime.log.config import RunInfo
from robot_runtime.log.entries import Fault, Line, LogEntry, Sent, Timed
from robot_runtime.log.file import END, INFO, PROFILE
from robot_runtime.log.forms import FormError, Forms
from robot_runtime.log.foxglove import jpeg_of
from robot_runtime.log.records import ChunkReader, Layout, RawMessage, scan

logger = logging.getLogger(__name__)
CAMERA = "/camera/"
_OUTCOMES = MappingProxyType({"True": Outcome.SUCCESS, "False": Outcome.FAILURE})


@dataclass(frozen=True, eq=False)
class LoggedTick:
    """One control step: what was measured, and what came of it. `tick.sent` is what the drivers made of it,
    and what is measured beside the parts is in `state.measured`."""

    state: RobotState
    tick: Tick
    timed: Timed | None = None
    """How the loop kept time; None under a simulation's clock."""


@dataclass(frozen=True, eq=False)
class LoggedRequest:
    """A question to the policy, and what came of it."""

    asked_ns: int
    """When it was made [ns]."""
    observation: Observation
    """What was seen then; its pictures say when they were taken, `RunLog.images` what they show."""
    request_id: int
    parts: tuple[PartCame, ...]
    """What came of the answer, in order."""


@dataclass(frozen=True)
class LoggedImage:
    """A picture of a camera."""

    t_ns: int
    """Capture time [ns]."""
    jpeg: bytes


class RunLog:
    """Reads one file. Every method goes through it anew and gives what it has up to where it ends."""

    def __init__(self, path: Path, layout: Layout, info: RunInfo) -> None:
        """See `open`."""
        self.path, self.layout, self.info = path, layout, info
        self._forms = Forms()

    @classmethod
    def open(cls, path: str | Path) -> "RunLog":
        """InvalidValueError: there is no such file, it is no log of ours, or of another version."""
        path = Path(path)
        layout = scan(path)
        about = layout.metadata.get(INFO, {}).get("json")
        if layout.profile != PROFILE or about is None:
            raise InvalidValueError(
                f"{path} is no log of a run of robot-runtime, or was cut at its very begin"
            )
        return cls(path, layout, RunInfo.from_json(about))

    # ---- what there is ---------------------------------------------------------------------------

    @property
    def is_finished(self) -> bool:
        """Whether the log was closed; one that was cut, killed or damaged is read as far as it goes."""
        return self.layout.is_finished

    @property
    def end(self) -> dict[str, str]:
        """What the run came to: `fault`, or `error`; empty if nothing was wrong or it was cut."""
        return self.layout.metadata.get(END, {})

    @property
    def cameras(self) -> tuple[str, ...]:
        """Those that gave pictures."""
        found = dict.fromkeys(each.topic for each in self.messages() if each.topic.startswith(CAMERA))
        return tuple(topic.removeprefix(CAMERA) for topic in found)

    def messages(self, *topics: str) -> Iterator[RawMessage]:
        """Of some topics, or of all, as they are in the file; `log_ns` is the calendar's time. They end at
        the first damage, which is said once, as a warning, and in `layout`."""
        reader = ChunkReader(self.path)
        yield from reader.messages(self.layout.chunks, frozenset(topics) if topics else None)
        if reader.damaged is not None and not self.layout.is_damaged:
            self.layout.is_damaged = True
            self.layout.num_lost += self.layout.end - reader.damaged.offset
            logger.warning(
                "%s is damaged at byte %d: it is read up to there, %d bytes are not",
                self.path,
                reader.damaged.offset,
                self.layout.num_lost,
            )

    # ---- the journal -----------------------------------------------------------------------------

    def entries(self) -> Iterator[Entry | LogEntry]:
        """All that was noted, in order. InvalidValueError: a value is of another version of this program."""
        for message in self.messages("/journal"):
            try:
                yield from self._forms.decode(message.data)
            except FormError as error:
                raise InvalidValueError(
                    f"{self.path}: its journal was written by another version of robot-runtime: {error}"
                ) from error

    def journal(self) -> Iterator[Entry]:
        """What went into the executor, in order: `core.journal`."""
        for entry in self.entries():
            if not isinstance(entry, LogEntry):
                yield entry

    @property
    def configuration(self) -> Configuration:
        """What the executor was made with. InvalidValueError: the log was cut before it."""
        for entry in self.entries():
            if isinstance(entry, Began):
                return entry.configuration
        raise InvalidValueError(f"{self.path} was cut before anything happened")

    def ticks(self) -> Iterator[LoggedTick]:
        """Every control step."""
        row: LoggedTick | None = None
        for entry in self.entries():
            match entry:
                case Ticked(state=state, tick=tick):
                    if row is not None:
                        yield row
                    row = LoggedTick(state, tick)
                case Sent(command=command) if row is not None:
                    row = replace(row, tick=replace(row.tick, sent=command))
                case Timed() if row is not None:
                    row = replace(row, timed=entry)
        if row is not None:
            yield row

    def requests(self) -> Iterator[LoggedRequest]:
        """Every request with what came of it, in the order in which they were made."""
        asked: dict[int, tuple[int, Observation]] = {}
        parts: dict[int, list[PartCame]] = {}
        now_ns = self.info.started_ns
        for entry in self.journal():
            match entry:
                case Looked(now_ns=now_ns):
                    pass
                case Asked(observation=seen, request=request):
                    asked[request.request_id] = now_ns, seen
                case PartCame(part=part):
                    parts.setdefault(part.request_id, []).append(entry)
        for request_id, (asked_ns, seen) in asked.items():
            yield LoggedRequest(asked_ns, seen, request_id, tuple(parts.get(request_id, ())))

    def splices(self) -> Iterator[Splice]:
        """Every answer's entry into the plan."""
        for entry in self.journal():
            if isinstance(entry, PartCame) and entry.splice is not None:
                yield entry.splice

    # ---- beside it -------------------------------------------------------------------------------

    def images(self, camera: str) -> Iterator[LoggedImage]:
        """Every picture that a camera gave. InvalidValueError: it gave none."""
        found = False
        for message in self.messages(CAMERA + camera):
            found = True
            yield LoggedImage(message.log_ns - self.info.offset_ns, jpeg_of(message.data))
        if not found:
            have = ", ".join(self.cameras) or "none"
            raise InvalidValueError(f"{self.path} has no pictures of camera {camera!r}, only of {have}")

    def lines(self) -> Iterator[Line]:
        """The lines of the run's log."""
        return (entry for entry in self.entries() if isinstance(entry, Line))

    def orders(self) -> Iterator[TakenOrder]:
        """What people asked for, done and refused."""
        return (entry for entry in self.entries() if isinstance(entry, TakenOrder))

    def episodes(self) -> list[EpisodeMark]:
        """The trials: those that people marked, or all of the run as one whose outcome nobody has said."""
        marks, start_ns, end_ns = list[EpisodeMark](), None, self.info.started_ns
        for entry in self.entries():
            if isinstance(entry, EpisodeMark):
                marks.append(entry)
            elif isinstance(entry, Ticked):
                start_ns = entry.tick.now_ns if start_ns is None else start_ns
                end_ns = entry.tick.now_ns
        if marks or start_ns is None:
            return marks
        outcome = _OUTCOMES.get(self.end.get("success", ""), Outcome.UNKNOWN)
        return [EpisodeMark(start_ns=start_ns, end_ns=end_ns + 1, outcome=outcome)]

    def faults(self) -> Iterator[Fault]:
        """What should not have happened."""
        return (entry for entry in self.entries() if isinstance(entry, Fault))

    def shown(self, topic: str) -> Iterator[tuple[int, dict[str, Any]]]:
        """What people see of a topic, as of /mode or /chunk: time [ns], and its values by name."""
        for message in self.messages(topic):
            yield message.log_ns - self.info.offset_ns, json.loads(message.data)
