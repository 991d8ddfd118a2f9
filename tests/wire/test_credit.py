from collections import Counter

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from session_pair import BLOCK, SPEC, make_request, make_welcome, rows_of

from robot_runtime.core.plan.request_planner import MAX_IN_FLIGHT
from robot_runtime.core.policy import ChunkRequest
from robot_runtime.wire.events import Event, PartReceived, RequestFailed
from robot_runtime.wire.in_flight import InFlightRequests
from robot_runtime.wire.messages import Cancel, Dropped, DropReason
from tests.examples import examples

DEADLINE = 20


class Desk:
    """A `InFlightRequests`, what it sent and said, and a server that answers when told."""

    def __init__(self) -> None:
        self.now = 0
        self.sent: list[ChunkRequest | Cancel] = []
        self.events: list[Event] = []
        self.next_row: Counter[int] = Counter()
        self.credit = InFlightRequests(
            make_welcome(), send=self.sent.append, emit=self.events.append, ignored=Counter()
        )

    def submit(self, request_id: int, *in_flight: int, deadline_ns: int = DEADLINE) -> None:
        request = make_request(request_id, in_flight=in_flight, deadline_ns=deadline_ns)
        self.credit.submit(request, self.now)

    def answer(self, request_id: int) -> bool:
        """The next rows; True if they were the last."""
        request, first = make_request(request_id), self.next_row[request_id]
        end = self.next_row[request_id] = first + BLOCK
        rows = rows_of(request)[first:end]
        part = request.part(rows, first_row=first, is_last=end == SPEC.horizon)
        self.credit.receive_rows(part, self.now)
        return part.is_last

    def sent_ids(self) -> list[int]:
        return [message.request_id for message in self.sent if isinstance(message, ChunkRequest)]

    def ended(self) -> Counter[int]:
        """How often each request has ended."""
        ends: Counter[int] = Counter()
        for event in self.events:
            match event:
                case PartReceived(part=part):
                    ends[part.request_id] += part.is_last
                case Dropped() | RequestFailed():
                    ends[event.request_id] += 1
        return +ends

    def superseded(self) -> list[int]:
        return [
            e.request_id for e in self.events if isinstance(e, Dropped) and e.reason is DropReason.SUPERSEDED
        ]


def test_a_request_that_follows_all_in_flight_is_sent_beside_them():
    desk = Desk()
    desk.submit(1)
    desk.submit(2, 1)
    desk.submit(3, 1, 2)
    assert desk.sent_ids() == [1, 2, 3]
    assert desk.events == []


def test_a_request_that_leaves_one_out_waits_for_it_alone():
    desk = Desk()
    for request_id, in_flight in ((1, ()), (2, (1,)), (3, (2,))):
        desk.submit(request_id, *in_flight)
    assert desk.sent_ids() == [1, 2]
    while not desk.answer(1):
        assert desk.sent_ids() == [1, 2]
    assert desk.sent_ids() == [1, 2, 3]


def test_what_is_in_flight_of_an_older_epoch_gives_way_at_once():
    desk = Desk()
    desk.submit(1)
    desk.submit(2, 1)
    desk.credit.submit(make_request(3, epoch=1, deadline_ns=DEADLINE), desk.now)
    assert desk.sent_ids() == [1, 2, 3]
    assert [m.request_id for m in desk.sent if isinstance(m, Cancel)] == [1, 2]
    assert [(e.request_id, e.reason) for e in desk.events] == [
        (1, DropReason.SUPERSEDED),
        (2, DropReason.SUPERSEDED),
    ]
    desk.answer(1)  # too late
    assert desk.ended() == {1: 1, 2: 1}


def test_a_waiting_request_that_the_next_one_follows_is_not_replaced():
    desk = Desk()
    desk.submit(1)
    desk.submit(2)
    desk.submit(3, 2)
    assert (desk.sent_ids(), desk.events) == ([1], [])
    desk.credit.cancel(1, 0, desk.now)
    assert desk.sent_ids() == [1, 2, 3]


def test_those_that_follow_a_request_go_on_when_it_ends_without_an_answer():
    desk = Desk()
    desk.submit(1)
    desk.submit(2, 1)
    desk.submit(3, 1, 2)
    desk.credit.fail(1, 0, "the policy failed", desk.now)
    desk.credit.drop(Dropped(request_id=2, epoch=0, reason=DropReason.DEADLINE), desk.now)
    while not desk.answer(3):
        pass
    assert desk.ended() == Counter([1, 2, 3])
    assert isinstance(desk.events[-1], PartReceived)


def test_answers_may_come_in_another_order_than_the_requests():
    desk = Desk()
    desk.submit(1)
    desk.submit(2, 1)
    for request_id in (2, 1, 2, 1, 2, 1):
        desk.answer(request_id)
    parts = [e.part for e in desk.events if isinstance(e, PartReceived)]
    assert [p.request_id for p in parts] == [2, 1, 2, 1, 2, 1]
    np.testing.assert_array_equal([p.rows[0, 0] for p in parts], [2, 1, 2, 1, 2, 1])


def test_in_flight_are_at_most_so_many():
    desk = Desk()
    for request_id in range(MAX_IN_FLIGHT + 1):
        desk.submit(request_id, *range(request_id))
    assert desk.sent_ids() == list(range(MAX_IN_FLIGHT))
    while not desk.answer(0):
        pass
    assert desk.sent_ids() == list(range(MAX_IN_FLIGHT + 1))


def test_everything_in_flight_expires_at_its_own_time_and_is_cancelled():
    desk = Desk()
    desk.submit(1, deadline_ns=5)
    desk.submit(2, 1, deadline_ns=9)
    assert sorted(desk.credit.next_timer_ns()) == [5, 9]
    desk.credit.expire(5)
    assert desk.events == [Dropped(request_id=1, epoch=0, reason=DropReason.DEADLINE)]
    desk.credit.expire(9)
    assert desk.events[1:] == [Dropped(request_id=2, epoch=0, reason=DropReason.DEADLINE)]
    assert [m.request_id for m in desk.sent if isinstance(m, Cancel)] == [1, 2]


@given(st.data())
@examples(150)
def test_whatever_happens_each_request_ends_once_and_none_that_is_named_gives_way(data):
    desk, num_submitted = Desk(), 0
    for _ in range(data.draw(st.integers(1, 40))):
        pending = [i for i in range(num_submitted) if i not in desk.ended()]
        in_flight = [i for i in desk.sent_ids() if i in pending]
        some = data.draw(st.sampled_from(pending or [0]))
        act = data.draw(st.sampled_from(["submit", "submit", "answer", "drop", "fail", "cancel", "wait"]))
        match act:
            case "submit":
                everything = data.draw(st.booleans())
                named = pending if everything else [i for i in pending if data.draw(st.booleans())]
                before = len(desk.superseded())
                desk.submit(num_submitted, *named, deadline_ns=data.draw(st.integers(1, DEADLINE)))
                assert not set(desk.superseded()[before:]) & set(named)
                if set(in_flight) <= set(named) and set(pending) == set(in_flight):
                    assert desk.sent_ids()[-1] == num_submitted
                num_submitted += 1
            case "answer" if some in in_flight:
                desk.answer(some)
            case "drop":
                desk.credit.drop(Dropped(request_id=some, epoch=0, reason=DropReason.DEADLINE), desk.now)
            case "fail":
                desk.credit.fail(some, 0, "no", desk.now)
            case "cancel":
                desk.credit.cancel(some, 0, desk.now)
            case "wait":
                desk.now += data.draw(st.integers(1, DEADLINE))
                desk.credit.expire(desk.now)
                assert all(t > desk.now for t in desk.credit.next_timer_ns())
        assert all(count == 1 for count in desk.ended().values())
    desk.credit.fail_all("the server is gone")
    assert desk.ended() == Counter(range(num_submitted))
