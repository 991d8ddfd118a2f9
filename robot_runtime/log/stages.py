"""Latency budget from what is seen to the command that follows from it: `stages_of` a log.

    captured ─► asked ─► sent ═► (queue ─► inference) ═► arrived ─► taken ─► row due ─► command sent
        seen      sending    network      server     network   waiting  planned    tick

The stages of one answer lie end to end, so they add up to capture-to-command. The server's clock is not
compared with the robot's: the server reports queue and inference times, and the rest of the time between
sent and arrived is the network's, encoding included.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from robot_runtime.core.journal import Asked, Entry, Looked, PartCame, Ticked
from robot_runtime.log.entries import Arrived, LogEntry, Timed

STAGES = ("seen", "sending", "network", "queue", "inference", "waiting", "planned", "tick")
"""In order; `MEANINGS` explains each."""
MEANINGS: Mapping[str, str] = {
    "seen": "capture of the oldest part of the observation, to the request",
    "sending": "the tick's command goes first, then encoding",
    "network": "there and back, with decoding",
    "queue": "on the server, until its batch began",
    "inference": "on the server, until these rows were final",
    "waiting": "arrived, until a tick took them",
    "planned": "in the plan, until a tick follows one of them",
    "tick": "of that tick, until its command is sent",
}


@dataclass(frozen=True, kw_only=True)
class Journey:
    """One answer that ran, by the robot's clock [ns]."""

    request_id: int
    captured_ns: int
    asked_ns: int
    sent_ns: int
    queued_ns: int
    """When it reached the server, if the network took equally long both ways."""
    started_ns: int
    """When its batch began, under the same assumption."""
    inferred_ns: int
    arrived_ns: int
    taken_ns: int
    due_ns: int
    """When the first tick that followed it began."""
    command_ns: int

    @property
    def stages_ns(self) -> dict[str, int]:
        """Duration of each stage; they add up to `command_ns` less `captured_ns`."""
        there_ns, back_ns = self.queued_ns - self.sent_ns, self.arrived_ns - self.inferred_ns
        return {
            "seen": self.asked_ns - self.captured_ns,
            "sending": self.sent_ns - self.asked_ns,
            "network": there_ns + back_ns,
            "queue": self.started_ns - self.queued_ns,
            "inference": self.inferred_ns - self.started_ns,
            "waiting": self.taken_ns - self.arrived_ns,
            "planned": self.due_ns - self.taken_ns,
            "tick": self.command_ns - self.due_ns,
        }


@dataclass(kw_only=True)
class _Open:
    """A request without its answer in the plan yet."""

    captured_ns: int
    asked_ns: int
    arrived: Arrived | None = None
    part: PartCame | None = None
    """The rows with which it entered the plan."""


def stages_of(entries: Iterable[Entry | LogEntry]) -> Iterator[Journey]:
    """Every answer that ran, in the order in which they ran. Under a virtual clock nothing is sent: the delay
    beyond queue and inference counts as the network's."""
    opened: dict[int, _Open] = {}
    running, looked_ns = -1, 0
    due: tuple[int, _Open] | None = None
    for entry in entries:
        if due is not None and not isinstance(entry, LogEntry):
            yield _journey(*due, command_ns=None)
            due = None
        match entry:
            case Looked(now_ns=now_ns):
                looked_ns = now_ns
            case Asked(observation=seen, request=request):
                opened[request.request_id] = _Open(captured_ns=seen.t_oldest_ns, asked_ns=looked_ns)
            case Arrived(request_id=request_id) if request_id in opened:
                opened[request_id].arrived = entry
            case PartCame(part=part, splice=splice) if splice is not None and part.request_id in opened:
                opened[part.request_id].part = entry
            case Ticked(tick=tick) if tick.source is not None and tick.source.request_id != running:
                running = tick.source.request_id
                of = opened.pop(running, None)
                if of is not None and of.part is not None:
                    due = tick.now_ns, of
            case Timed(now_ns=now_ns, took_ns=took_ns) if due is not None:
                yield _journey(*due, command_ns=now_ns + took_ns)
                due = None
    if due is not None:
        yield _journey(*due, command_ns=None)


def _journey(due_ns: int, of: _Open, *, command_ns: int | None) -> Journey:
    """Order the times: a tick is stamped when it begins, but also takes rows that arrive after that, so each
    time is at least the one before it."""
    assert of.part is not None
    part, arrived = of.part.part, of.arrived
    asked_ns = max(of.asked_ns, of.captured_ns)
    sent_ns = asked_ns if arrived is None else max(arrived.sent_ns, asked_ns)
    arrived_ns = max(of.part.now_ns if arrived is None else arrived.arrived_ns, sent_ns)
    taken_ns = max(of.part.now_ns, arrived_ns)
    away_ns = arrived_ns - sent_ns
    queue_ns = min(part.queue_ns, away_ns)
    infer_ns = min(part.infer_ns, away_ns - queue_ns)
    queued_ns = sent_ns + (away_ns - queue_ns - infer_ns) // 2
    due_ns = max(due_ns, taken_ns)
    return Journey(
        request_id=part.request_id,
        captured_ns=of.captured_ns,
        asked_ns=asked_ns,
        sent_ns=sent_ns,
        queued_ns=queued_ns,
        started_ns=queued_ns + queue_ns,
        inferred_ns=queued_ns + queue_ns + infer_ns,
        arrived_ns=arrived_ns,
        taken_ns=taken_ns,
        due_ns=due_ns,
        command_ns=due_ns if command_ns is None else max(command_ns, due_ns),
    )
