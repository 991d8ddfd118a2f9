"""The contents of a log, in a few figures: `summary`."""

from collections import Counter
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from robot_runtime.core.journal import Asked, PartCame, Ticked
from robot_runtime.core.orders import EpisodeMark, TakenOrder
from robot_runtime.core.values.action import NS_PER_S
from robot_runtime.log.entries import Fault
from robot_runtime.log.reader import CAMERA, RunLog
from robot_runtime.log.ring import JOURNAL


@dataclass(kw_only=True)
class Summary:
    """Counts from one pass over the file."""

    began: str
    """Calendar time at the start, local."""
    seconds: float = 0.0
    ticks: int = 0
    requests: int = 0
    splices: int = 0
    orders: int = 0
    faults: int = 0
    modes: Counter[str] = field(default_factory=Counter)
    """Control ticks in each mode."""
    pictures: Counter[str] = field(default_factory=Counter)
    """Images of each camera."""
    num_bytes: Counter[str] = field(default_factory=Counter)
    """Size of messages, by topic, before compression."""
    episodes: list[EpisodeMark] = field(default_factory=list)


def summary(log: RunLog) -> Summary:
    """Summarise a log, as far as it can be read."""
    began = datetime.fromtimestamp(log.info.started_wall_ns / NS_PER_S)
    out = Summary(began=began.strftime("%Y-%m-%d %H:%M:%S"))
    first_ns, last_ns, marks = None, 0, list[EpisodeMark]()
    for message in log.messages():
        out.num_bytes[message.topic] += len(message.data)
        if message.topic.startswith(CAMERA):
            out.pictures[message.topic.removeprefix(CAMERA)] += 1
        for entry in log.entries_of(message) if message.topic == JOURNAL else ():
            match entry:
                case Ticked(tick=tick):
                    first_ns, last_ns = first_ns if first_ns is not None else tick.now_ns, tick.now_ns
                    out.ticks += 1
                    out.modes[tick.mode.name] += 1
                case Asked():
                    out.requests += 1
                case PartCame(splice=splice):
                    out.splices += splice is not None
                case TakenOrder():
                    out.orders += 1
                case Fault():
                    out.faults += 1
                case EpisodeMark():
                    marks.append(entry)
    if first_ns is not None:
        out.seconds = (last_ns - first_ns) / NS_PER_S
    out.episodes = log.episodes_of(marks, first_ns, last_ns)
    return out


def size_of(path: Path) -> str:
    """Size of a file, as text."""
    return f"{path.stat().st_size / 1e6:.1f} MB"
