"""A client and a server session in memory, joined by a network that does as told; time is an integer."""

import itertools
from collections.abc import Callable
from dataclasses import replace

import numpy as np
from msgspec import structs

from robot_runtime.core.method.sampler_parts import ConstantSchedule
from robot_runtime.core.policy import ChunkRequest
from robot_runtime.core.policy_info import PolicyInfo
from robot_runtime.core.values.action import NS_PER_S, ActionSpec, ChunkPart, JointPosition
from robot_runtime.core.values.schema import Schema
from robot_runtime.core.values.state import Image, Observation, RobotState
from robot_runtime.wire.client_session import ClientSession
from robot_runtime.wire.codec import decode, encode, read
from robot_runtime.wire.events import Event, PartReceived
from robot_runtime.wire.frames import ProtocolError
from robot_runtime.wire.messages import Packet, Welcome
from robot_runtime.wire.request_queue import QueuedRequest
from robot_runtime.wire.server_session import ServerSession

MS = 1_000_000
TICK = 5 * MS
DIM = 2
SPEC = ActionSpec(fields=(JointPosition(DIM),), horizon=6, dt_ns=NS_PER_S // 30)
BLOCK = 2


def make_schema(*, num_joints: int = DIM, cameras: dict[str, tuple[int, int]] | None = None) -> Schema:
    return Schema(
        action_fields=(JointPosition(num_joints),),
        num_joints=num_joints,
        has_gripper=False,
        has_base=False,
        cameras={"wrist": (4, 6)} if cameras is None else cameras,
    )


def make_welcome(**changes) -> Welcome:
    heartbeat_ns = changes.pop("heartbeat_ns", 25 * MS)
    spec = changes.pop("action_spec", SPEC)
    schema = changes.pop("schema", None)
    if schema is not None and schema.action_fields:
        spec = replace(spec, fields=schema.action_fields)
    schema = schema or replace(make_schema(), action_fields=())
    info = PolicyInfo(name="toy", action_spec=spec, schema=schema, **changes)
    return Welcome(info=info, heartbeat_ns=heartbeat_ns)


def make_request(request_id: int, *, epoch: int = 0, deadline_ns: int = NS_PER_S, **changes) -> ChunkRequest:
    pixels = np.zeros((4, 6, 3), np.uint8)
    observation = Observation(
        state=RobotState(t_ns=1000 + request_id, q=np.zeros(DIM), dq=np.zeros(DIM)),
        images={"wrist": Image(t_ns=7, pixels=pixels)},
    )
    values = {"observation": observation, "prev_action_chunk": None, "inference_delay": 0}
    values |= {"sampler": ConstantSchedule(), "seed": 0}
    return ChunkRequest(request_id=request_id, epoch=epoch, deadline_ns=deadline_ns, **(values | changes))


def arrived(packet: Packet) -> Packet | ProtocolError:
    """A packet as the server's side gets it."""
    return read([bytes(frame) for frame in encode(packet)])


def rows_of(request: ChunkRequest) -> np.ndarray:
    """The one right answer to a request: (request id, row)."""
    rows = np.empty((SPEC.horizon, DIM))
    rows[:, 0], rows[:, 1] = request.request_id, np.arange(SPEC.horizon)
    return rows


def start_next(session: ServerSession) -> QueuedRequest | None:
    """Run what is most urgent, by itself."""
    for job in session.startable():
        if (shown := session.start(job)) is not None:
            return shown
    return None


class ToyServer:
    """A server session and a policy that needs one tick for each block of rows."""

    def __init__(self, **welcome) -> None:
        self.session = ServerSession(make_welcome(**welcome))
        self.job: QueuedRequest | None = None
        self.next_row = 0

    def tick(self, now_ns: int) -> None:
        self.session.handle_timer(now_ns)
        if self.job is not None and not self.session.is_wanted(self.job):
            self.job = None
        if self.job is None:
            self.job, self.next_row = start_next(self.session), 0
            return
        first, self.next_row = self.next_row, self.next_row + BLOCK
        is_last = self.next_row == SPEC.horizon
        rows = rows_of(self.job.request)[first : self.next_row]
        self.session.rows_ready(self.job, self.job.request.part(rows, first_row=first, is_last=is_last))
        if is_last:
            self.job = None


Fate = Callable[[str], list[int]]
"""What becomes of a packet to "server" or "client": delays of its copies [ticks]; none if it is lost."""


def deliver_at_once(to: str) -> list[int]:
    return [0]


class SessionPair:
    """One client, one server, and the packets under way, as frames."""

    def __init__(self, *, fate: Fate = deliver_at_once, schema: Schema | None = None, **welcome) -> None:
        self.now_ns = 0
        self.client = ClientSession(
            client_id="me",
            robot="toy robot",
            schema=schema or make_schema(),
            session_ids=itertools.count(100),
        )
        self.server: ToyServer | None = ToyServer(**welcome)
        self.fate = fate
        self.events: list[Event] = []
        self.to_server: list[tuple[int, list]] = []
        self.to_client: list[tuple[int, list]] = []
        self.client.connect(self.now_ns)

    def _post(self, to: str, line: list[tuple[int, list]], packet: Packet) -> None:
        for delay in self.fate(to):
            line.append((self.now_ns + delay * TICK, encode(packet)))

    def _arrived(self, line: list[tuple[int, list]]) -> list[list]:
        due = [frames for at_ns, frames in line if at_ns <= self.now_ns]
        line[:] = [(at_ns, frames) for at_ns, frames in line if at_ns > self.now_ns]
        return due

    def flush(self) -> None:
        """Move packets to where they go; those for a dead server are lost."""
        for packet in self.client.packets_to_send():
            self._post("server", self.to_server, packet)
        arrived = self._arrived(self.to_server)
        if self.server is not None:
            for frames in arrived:
                self.server.session.receive(b"peer", read(frames), self.now_ns)
            for _, packet in self.server.session.packets_to_send():
                self._post("client", self.to_client, packet)
        for frames in self._arrived(self.to_client):
            self.client.receive(decode(frames), self.now_ns)
        while (event := self.client.next_event()) is not None:
            self.events.append(event)

    def tick(self, num_ticks: int = 1) -> None:
        """Let time pass."""
        for _ in range(num_ticks):
            self.now_ns += TICK
            if self.server is not None:
                self.server.tick(self.now_ns)
            self.client.handle_timer(self.now_ns)
            self.flush()

    def submit(self, request: ChunkRequest) -> None:
        self.client.submit(request, self.now_ns)
        self.flush()

    def take_events(self, kind: type | None = None) -> list:
        """Events so far, of one kind if asked; all are forgotten."""
        events, self.events = self.events, []
        return [event for event in events if kind is None or isinstance(event, kind)]


def ready_pair(**kwargs) -> SessionPair:
    """A pair that has shaken hands."""
    pair = SessionPair(**kwargs)
    pair.flush()
    pair.flush()
    pair.take_events()
    return pair


def reply(request: ChunkRequest, first: int, end: int, **changes) -> ChunkPart:
    part = request.part(rows_of(request)[first:end], first_row=first, is_last=end == SPEC.horizon)
    return structs.replace(part, queue_ns=1, infer_ns=2, **changes)


def received_rows(events: list) -> list[int]:
    return [int(row[1]) for e in events if isinstance(e, PartReceived) for row in e.part.rows]


def say(pair: SessionPair, message, *, session: int | None = None, client_id: str = "me") -> None:
    """The server's words, straight into the client's ear."""
    session_id = pair.client.session_id if session is None else session
    pair.client.receive(Packet(client_id, session_id, message), pair.now_ns)
    while (event := pair.client.next_event()) is not None:
        pair.events.append(event)
