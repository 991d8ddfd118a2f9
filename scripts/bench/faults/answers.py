"""Rows 4 to 6: answers that belong to other requests, are invalid, or exceed the robot's limits."""

import time
from collections.abc import Callable, Iterator

import numpy as np

from robot_runtime.core.policy import ChunkRequest
from robot_runtime.core.values.action import NS_PER_S, ChunkPart
from robot_runtime.robot.client import PolicyClient
from robot_runtime.robot.runner import FAR_ANSWERS
from robot_runtime.server.warming import zero_observation
from robot_runtime.wire.events import PartReceived, RequestFailed
from robot_runtime.wire.messages import Dropped
from scripts.bench.faults.rig import (
    Run,
    Running,
    joints,
    num_stale,
    run,
    shares,
    surprises,
)
from scripts.bench.faults.servers import (
    FRANKA,
    WRONG_BY,
    Broken,
    HostileProcess,
    NamedRows,
    PolicyProcess,
    Swing,
    Wild,
    nonsense,
    strays,
)
from scripts.bench.faults.table import Injection, fault

DELIVERIES = 2_000
"""Requests of each injection; fifty injections make 1e5."""
WAIT_S = 5.0

# ---- 4: replies out of place -------------------------------------------------------------------------------


@fault(
    4,
    "replies out of place",
    how="a server that adds to each answer 8 that are doubled, late, early, of other requests, epochs, "
    "sessions and robots; one request in ten is given up",
    behaviour="what is not the open request's next part is dropped in one place",
    figures={
        "rows of another request": 0.0,
        "answers lost": 0.0,
        "stale rows run": 0.0,
        "deliveries": None,
    },
)
def stray_replies(times: int) -> Iterator[Injection]:
    """Send requests through a real socket, with right and wrong answers to each; then run a robot on such
    answers."""
    with HostileProcess(NamedRows, strays) as server, PolicyClient(server.address, schema=FRANKA) as client:
        client.wait_until_ready()
        asker = _Asker(client)
        for _ in range(times):
            before, asker.num_wrong = server.num_sent(), 0
            while server.num_sent() - before < DELIVERIES:
                for _ in range(40):
                    asker.ask()
            yield Injection(
                figures={
                    "deliveries": float(server.num_sent() - before),
                    "rows of another request": float(asker.num_wrong),
                    "answers lost": float(asker.take_lost()),
                }
            )
    with HostileProcess(Swing, strays) as server:
        of = run(server.address, lambda running: time.sleep(3.0))
    yield Injection(figures={"stale rows run": float(num_stale(of))}, surprises=surprises(of), count=0)


class _Asker:
    """Sends one request after the other, and cancels one in ten before its answer comes."""

    def __init__(self, client: PolicyClient) -> None:
        self._client, self._next_id, self._epoch = client, 0, client.new_epochs()
        assert client.welcome is not None
        self._sampler = client.welcome.info.capabilities.samplers[0]()
        self.num_wrong = self._num_lost = 0

    def take_lost(self) -> int:
        lost, self._num_lost = self._num_lost, 0
        return lost

    def ask(self) -> None:
        self._next_id += 1
        request = ChunkRequest(
            request_id=self._next_id,
            epoch=self._epoch,
            observation=zero_observation(FRANKA, ""),
            sampler=self._sampler,
            deadline_ns=NS_PER_S,
        )
        self._client.submit(request)
        if self._next_id % 10 == 0:
            self._client.cancel(request_id=self._next_id, epoch=self._epoch)
        rows: list[np.ndarray] = []
        end_s = time.monotonic() + WAIT_S
        while time.monotonic() < end_s:
            self._client.wait_for_events(0.1)
            for event in self._client.events():
                match event:
                    case PartReceived(part=part):
                        self._look(part, rows)
                        if part.is_last:
                            return
                    case Dropped() | RequestFailed() if event.request_id == self._next_id:
                        self._num_lost += self._next_id % 10 != 0
                        return
        self._num_lost += 1

    def _look(self, part: ChunkPart, rows: list[np.ndarray]) -> None:
        first = sum(map(len, rows))
        is_right = (
            part.request_id == self._next_id
            and part.first_row == first
            and (part.rows[:, 0] == self._next_id).all()
            and (part.rows[:, 1] == np.arange(first, first + len(part.rows))).all()
        )
        self.num_wrong += 0 if is_right else len(part.rows)
        rows.append(part.rows)


# ---- 5: answers that are none ------------------------------------------------------------------------------

EACH_S = 0.1


@fault(
    5,
    "answers that are none",
    how="NaN, infinite, of other shapes and types, errors: of the policy, and of a server that does not look",
    behaviour="the whole chunk is refused and counted, and asked for again; HOLD where the plan ends",
    figures={
        "commands not finite": 0.0,
        "way beyond the good rows [rad]": 0.0,
        "chunks refused": None,
    },
    times=100,
)
def no_answers(times: int) -> Iterator[Injection]:
    """Run a broken policy behind our server, which checks its rows; then a server that does not check."""
    with PolicyProcess(Broken) as server:
        yield _of_nonsense(run(server.address, _for_seconds(times * EACH_S)))
    with HostileProcess(Swing, nonsense) as server:
        yield _of_nonsense(run(server.address, _for_seconds(times * EACH_S)))


def _for_seconds(seconds: float) -> Callable[[Running], None]:
    def interfere(running: Running) -> None:
        assert running.wait_until_it_moves(10.0)
        time.sleep(seconds)

    return interfere


def _of_nonsense(of: Run) -> Injection:
    sent = of.record.sent()[:, 1:]
    swing = np.abs(joints(of.record.ticks) - joints(of.record.ticks)[0]).max()
    failed = of.events.get("RequestFailed", 0)
    return Injection(
        figures={
            "commands not finite": float((~np.isfinite(sent)).any(axis=1).sum()),
            "chunks refused": float(failed),
            "way beyond the good rows": max(0.0, float(swing) - WRONG_BY),
        },
        surprises=surprises(of),
        count=failed,
    )


# ---- 6: more than a robot can do ---------------------------------------------------------------------------


@fault(
    6,
    "beyond the limits",
    how="steps of 1 to 2 rad, alternating rows, ramps of 15 rad/s, numbers up to 1e9",
    behaviour="the robot goes there as fast as its limits allow; what was held back is told, and an "
    "answer that lies a turn or more beyond a joint's range is refused whole",
    figures={f"{kind} of its limit": 1.0 + 1e-6 for kind in ("speed", "acceleration", "jerk")},
    times=100,
)
def wild_answers(times: int) -> Iterator[Injection]:
    """Run once on answers that no robot can follow."""
    with PolicyProcess(Wild) as server:
        of = run(server.address, _for_seconds(times * 0.25))
    greatest = shares(joints(of.record.ticks), of.limits.joints)
    yield Injection(
        figures={f"{kind} of its limit": float(share.max()) for kind, share in greatest.items()},
        surprises=surprises(of, fault=FAR_ANSWERS if of.record.counts.far_answers else ""),
        count=of.record.num_splices,
    )
