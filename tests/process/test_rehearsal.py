import time
from collections.abc import Iterator

import pytest
from toy import ToyPolicy, serving, toy_request, toy_schema

from robot_runtime.client import PolicyClient
from robot_runtime.server.account import Account
from robot_runtime.server.rehearsal import ServerRehearsal
from robot_runtime.wire.rehearsal import NUM_TIMES, ClientRehearsal
from sim.clock import SimClock

MS = 1_000_000
TIMEOUT_S = 20.0


def test_both_sides_rehearse_before_the_requests_of_a_robot_that_keeps_its_pace(monkeypatch):
    rehearsed: dict[str, int] = {}  # at how many requests each side first did
    request_id = 0

    def note(side: str, rehearse):
        def noted(rehearsal, now_ns: int) -> None:
            rehearsed.setdefault(side, request_id)
            rehearse(rehearsal, now_ns)

        return noted

    monkeypatch.setattr(ClientRehearsal, "run", note("robot", ClientRehearsal.run))
    monkeypatch.setattr(ServerRehearsal, "begin", note("server", ServerRehearsal.begin))
    account = Account()
    with (
        serving(ToyPolicy(), heartbeat_ns=10**9, accounts={"toy": account}) as server,
        PolicyClient(server.address, schema=toy_schema()) as client,
    ):
        client.wait_until_ready(TIMEOUT_S)
        deadline_s = time.monotonic() + TIMEOUT_S
        while {*rehearsed} != {"robot", "server"} and time.monotonic() < deadline_s:
            request_id += 1
            client.submit(toy_request(request_id))
            time.sleep(0.05)
    assert {*rehearsed} == {"robot", "server"}
    assert min(rehearsed.values()) >= 2  # there is no pace before
    assert account.requests.total() <= request_id  # nobody's are not counted


@pytest.fixture
def clock() -> SimClock:
    return SimClock()


@pytest.fixture
def rehearsal(clock) -> Iterator[ServerRehearsal]:
    rehearsal = ServerRehearsal(clock=clock, ring=lambda: None)
    yield rehearsal
    rehearsal.close()


def rehearse(rehearsal: ServerRehearsal, clock: SimClock) -> None:
    rehearsal.begin(clock.now_ns())
    deadline_s = time.monotonic() + TIMEOUT_S
    while not rehearsal.is_over and time.monotonic() < deadline_s:
        time.sleep(0.001)
        rehearsal.turn(clock.now_ns())


def test_the_server_goes_through_requests_of_nobodys_from_the_first_byte_to_the_answer(rehearsal, clock):
    rehearse(rehearsal, clock)
    assert rehearsal.account.requests == {"answered": NUM_TIMES}
    assert not rehearsal.account.ignored


def test_of_heartbeats_that_come_together_only_the_first_begins_a_rehearsal(rehearsal, clock):
    for _ in range(5):
        rehearse(rehearsal, clock)
        clock.sleep_until_ns(clock.now_ns() + MS)
    assert rehearsal.account.requests == {"answered": NUM_TIMES}
    rehearse(rehearsal, clock)
    assert rehearsal.account.requests == {"answered": 2 * NUM_TIMES}


def test_a_rehearsal_after_an_hour_is_one_like_all_others(rehearsal, clock):
    for hours in range(1, 4):
        rehearse(rehearsal, clock)
        assert rehearsal.account.requests == {"answered": hours * NUM_TIMES}
        clock.sleep_until_ns(clock.now_ns() + 3600 * 1000 * MS)
