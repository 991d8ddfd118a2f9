"""How many signs of life a robot asks for, and when it takes none for an answer."""

from robot_runtime.core.values.action import NS_PER_MS as MS
from robot_runtime.core.values.action import NS_PER_S
from robot_runtime.transport.sockets import HIGH_WATER_MARK
from robot_runtime.wire.heartbeats import MAX_PATIENCE_NS, MIN_PATIENCE_NS, Heartbeats

WISH = 25 * MS


def sent_by(heartbeats: Heartbeats, start_ns: int, end_ns: int) -> list[int]:
    """When they go out while nothing comes back."""
    out, now_ns = [], start_ns
    while now_ns < end_ns:
        if heartbeats.beat(now_ns):
            out.append(now_ns)
        now_ns = heartbeats.next_ns
    return out


def test_behind_a_picture_wait_far_fewer_than_a_server_may_have_to_answer_at_once():
    """Libzmq drops what is beyond the mark, and the picture's answer comes after those to the heartbeats."""
    assert 8 <= len(sent_by(Heartbeats(WISH, 0), 0, 4 * NS_PER_S)) <= HIGH_WATER_MARK // 2
    assert len(sent_by(Heartbeats(WISH, 0), 0, MAX_PATIENCE_NS)) <= 2 * HIGH_WATER_MARK // 3


def test_when_answers_come_again_they_go_out_as_often_as_before():
    heartbeats = Heartbeats(WISH, 0)
    behind_a_picture = sent_by(heartbeats, 0, NS_PER_S)
    for sent_ns in behind_a_picture:
        assert heartbeats.answered(sent_ns, sent_ns + MS)
    start_ns = heartbeats.next_ns
    assert sent_by(heartbeats, start_ns, start_ns + 4 * WISH) == [start_ns + k * WISH for k in range(4)]


def test_all_that_wait_for_a_round_trip_go_out():
    """A quarter of it apart."""
    heartbeats, round_trip_ns = Heartbeats(WISH, 0), 400 * MS
    for _ in range(60):
        now_ns = heartbeats.next_ns
        heartbeats.beat(now_ns)
        heartbeats.answered(now_ns, now_ns + round_trip_ns)
    now_ns = heartbeats.next_ns
    due = []
    for _ in range(20):
        if due and due[0] + round_trip_ns <= now_ns:
            heartbeats.answered(due.pop(0), now_ns)
        assert heartbeats.beat(now_ns)
        due.append(now_ns)
        now_ns = heartbeats.next_ns


def test_a_server_that_hangs_is_lost_as_soon_though_it_is_asked_more_rarely():
    heartbeats = Heartbeats(WISH, 0)
    heartbeats.beat(0)
    heartbeats.answered(0, MS)
    heartbeats.heard(MS)
    now_ns = heartbeats.next_ns
    while not heartbeats.look(now_ns):
        heartbeats.beat(now_ns)
        now_ns = heartbeats.next_ns
    assert now_ns <= MIN_PATIENCE_NS + 100 * MS
