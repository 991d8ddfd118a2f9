"""A policy that looks back: no picture is sent twice, and whatever is lost, it sees what the robot saw."""

import itertools
import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from session_pair import DIM, SPEC, TICK, SessionPair, ToyServer, make_request, ready_pair, received_rows

from robot_runtime.core.history import ObservationHistory
from robot_runtime.core.policy import ChunkRequest
from robot_runtime.core.values.action import NS_PER_S
from robot_runtime.core.values.state import Image, Observation, RobotState
from robot_runtime.wire import server_session
from robot_runtime.wire.codec import decode, encode, read, with_images
from robot_runtime.wire.events import PartReceived, RequestFailed
from robot_runtime.wire.messages import Dropped, ErrorCode, ErrorReply
from tests.examples import examples

LOOKS_BACK = 3
STEP = 10


def picture(t_ns: int) -> Image:
    """One that nobody takes for that of another time."""
    return Image(t_ns=t_ns, pixels=np.random.default_rng(t_ns).integers(0, 255, (4, 6, 3), np.uint8))


def seen_at(t_ns: int, *, camera_period: int = STEP) -> Observation:
    state = RobotState(t_ns=t_ns, q=np.full(DIM, float(t_ns)), dq=np.zeros(DIM))
    return Observation(state=state, images={"wrist": picture(t_ns // camera_period * camera_period)})


class Robot:
    """Keeps what it has seen, as the runtime does, and asks."""

    def __init__(self, *, camera_period: int = STEP) -> None:
        self.history = ObservationHistory(n_obs_steps=LOOKS_BACK, spacing_ns=STEP)
        self.t_ns = self.next_id = 0
        self.asked: dict[int, ChunkRequest] = {}
        self._camera_period, self._picture = camera_period, picture(0)

    def sees(self, num_ticks: int) -> Observation:
        for _ in range(num_ticks):
            self.t_ns += 1
            seen = seen_at(self.t_ns, camera_period=self._camera_period)
            if seen.images["wrist"].t_ns != self._picture.t_ns:
                self._picture = seen.images["wrist"]
            seen = Observation(state=seen.state, images={"wrist": self._picture})
            if self.history.is_due(self.t_ns):
                self.history.note(seen)
        return seen

    def asks(self, num_ticks: int, **changes) -> ChunkRequest:
        """A request so many ticks after the last one."""
        self.next_id += 1
        shown = self.history.asked(self.sees(num_ticks))
        request = make_request(self.next_id, observation=shown, **changes)
        self.asked[self.next_id] = request
        return request


class LookingServer(ToyServer):
    """Compares what the policy is shown with what was asked."""

    def __init__(self, robot: Robot, **welcome) -> None:
        super().__init__(**welcome)
        self.robot, self.num_shown = robot, 0

    def tick(self, now_ns: int) -> None:
        before = self.job
        super().tick(now_ns)
        if self.job is not None and self.job is not before:
            shown = with_images(self.job.request, self.job.pictures, None).observation
            asked = self.robot.asked[self.job.request.request_id].observation
            assert_same(shown.frames(LOOKS_BACK), asked.frames(LOOKS_BACK))
            self.num_shown += 1


def assert_same(shown: tuple[Observation, ...], asked: tuple[Observation, ...]) -> None:
    for there, here in zip(shown, asked, strict=True):
        assert there.t_obs_ns == here.t_obs_ns
        np.testing.assert_array_equal(there.state.q, here.state.q)
        assert there.images["wrist"].t_ns == here.images["wrist"].t_ns
        np.testing.assert_array_equal(there.images["wrist"].pixels, here.images["wrist"].pixels)


def pair_of(robot: Robot, **kwargs) -> SessionPair:
    pair = ready_pair(n_obs_steps=LOOKS_BACK, **kwargs)
    pair.server = LookingServer(robot, n_obs_steps=LOOKS_BACK)
    pair.tick(200)
    pair.take_events()
    return pair


def sent_pictures(pair: SessionPair, request: ChunkRequest) -> list[int]:
    """Capture times of those that travel with a request."""
    pair.client.submit(request, pair.now_ns)
    (packet,) = packets = pair.client.packets_to_send()
    pair.client._outbox[:] = packets
    pictures = read(encode(packet)).pictures
    pair.flush()
    return [picture.t_ns for picture in pictures if picture.encoding != "kept"]


def answered(pair: SessionPair) -> list[int]:
    pair.tick(8)
    return received_rows(pair.take_events())


def test_a_picture_is_sent_once_however_often_it_is_shown():
    robot = Robot()
    pair = pair_of(robot)
    sent = []
    for num_ticks in (1, 9, 10, 10, 20, 10):
        sent += sent_pictures(pair, robot.asks(num_ticks))
        assert answered(pair) == list(range(SPEC.horizon))
    assert sorted(sent) == sorted(set(sent))
    assert pair.server.num_shown == 6


def test_a_slow_cameras_picture_travels_once_for_all_frames_that_show_it():
    robot = Robot(camera_period=1000)
    pair = pair_of(robot)
    assert [sent_pictures(pair, robot.asks(10)) and answered(pair) for _ in range(1)]
    for _ in range(3):
        assert sent_pictures(pair, robot.asks(10)) == []
        assert answered(pair) == list(range(SPEC.horizon))


def test_at_the_start_of_a_run_nothing_is_sent_but_what_there_is():
    robot = Robot()
    pair = pair_of(robot)
    first = robot.asks(1)
    assert first.observation.history == ()
    assert len(sent_pictures(pair, first)) == 1
    assert answered(pair) == list(range(SPEC.horizon))


def test_pictures_that_the_server_has_lost_are_sent_whole_and_nothing_fails():
    robot = Robot()
    pair = pair_of(robot)
    for _ in range(3):
        pair.submit(robot.asks(10))
        assert answered(pair) == list(range(SPEC.horizon))
    for client in pair.server.session._clients.values():
        client.pictures.forget()
    pair.submit(robot.asks(10))
    assert answered(pair) == list(range(SPEC.horizon))
    assert pair.server.session.outcomes["pictures_lost"] == 1
    for _ in range(2):  # a server that has no room gets them whole from now on
        assert len(sent_pictures(pair, robot.asks(10))) == LOOKS_BACK
        assert answered(pair) == list(range(SPEC.horizon))
    assert pair.server.session.outcomes["pictures_lost"] == 1


def test_a_server_keeps_no_more_of_all_robots_than_it_has_room_for(monkeypatch: pytest.MonkeyPatch):
    robot = Robot()
    pair = pair_of(robot)
    monkeypatch.setattr(server_session, "MAX_KEPT_BYTES", 2 * 4 * 6 * 3)
    for _ in range(4):
        pair.submit(robot.asks(10))
        assert answered(pair) == list(range(SPEC.horizon))
        kept = [client.pictures.num_bytes for client in pair.server.session._clients.values()]
        assert sum(kept) <= 2 * 4 * 6 * 3
    assert pair.server.session.outcomes["pictures_lost"] == 1


def test_a_request_that_was_whole_is_not_sent_again():
    robot = Robot()
    pair = pair_of(robot)
    request = robot.asks(1)
    pair.submit(request)
    lost = ErrorReply(code=ErrorCode.PICTURES_LOST, message="lost", request_id=1, epoch=0)
    from session_pair import say

    say(pair, lost)
    assert pair.client.packets_to_send() == []
    assert answered(pair) == list(range(SPEC.horizon))


@pytest.mark.parametrize(
    ("times", "words"),
    [
        ((10, 20, 30), "there are 4 observations, the policy looks at 3"),
        ((20, 10), "earlier observations come oldest first"),
        ((10, 50), "earlier observations come oldest first"),
    ],
)
def test_a_history_that_does_not_fit_is_refused_in_words(times: tuple[int, ...], words: str):
    robot = Robot()
    pair = pair_of(robot)
    newest = seen_at(40)
    history = tuple(seen_at(t_ns) for t_ns in times)
    observation = Observation(state=newest.state, images=newest.images, history=history)
    packet_of = make_request(1, observation=observation)
    pair.client._requests._n_obs_steps = 10  # a client that does not look
    pair.submit(packet_of)
    pair.tick(2)
    (failed,) = pair.take_events(RequestFailed)
    assert words in failed.reason


def test_a_robot_that_keeps_more_than_is_asked_for_sends_what_is_asked_for():
    pair = ready_pair()  # a policy of one observation
    shown = Observation(state=seen_at(40).state, images=seen_at(40).images, history=(seen_at(30),))
    assert sent_pictures(pair, make_request(1, observation=shown)) == [40]


def test_a_request_of_one_observation_is_as_long_as_ever():
    request = make_request(1)
    from robot_runtime.wire.messages import Packet

    frames = encode(Packet("me", 1, request))
    assert b"history" not in bytes(frames[0])
    assert decode(frames).message.observation.history == ()


@given(seed=st.integers(0, 2**32), loss=st.floats(0, 0.4), copies=st.floats(0, 0.4), delay=st.integers(0, 20))
@examples(30)
def test_whatever_the_network_does_a_policy_sees_what_the_robot_saw(seed, loss, copies, delay):
    """Packets are lost, doubled and overtaken, servers start anew and forget pictures."""
    rng = random.Random(seed)

    def fate(to: str) -> list[int]:
        count = 0 if rng.random() < loss else 1 + (rng.random() < copies)
        return [rng.randint(0, delay) for _ in range(count)]

    robot = Robot(camera_period=rng.choice([1, 7, STEP, 25]))
    pair = pair_of(robot)
    pair.fate = fate
    ended: dict[int, int] = {}

    def look() -> None:
        for event in pair.take_events():
            is_end = isinstance(event, Dropped | RequestFailed)
            if isinstance(event, PartReceived):
                np.testing.assert_array_equal(event.part.rows[:, 0], event.part.request_id)
                is_end = event.part.is_last
            if is_end:
                request_id = event.part.request_id if isinstance(event, PartReceived) else event.request_id
                ended[request_id] = ended.get(request_id, 0) + 1

    for _ in range(120):
        if rng.random() < 0.2:
            still_open = [i for i in robot.asked if i not in ended]
            in_flight = tuple(i for i in still_open if rng.random() < 0.8)
            pair.submit(
                robot.asks(rng.randint(1, 30), in_flight=in_flight, deadline_ns=rng.randint(1, 60) * TICK)
            )
        if rng.random() < 0.02:
            pair.server = LookingServer(robot, n_obs_steps=LOOKS_BACK)
        if rng.random() < 0.05:
            for client in pair.server.session._clients.values():
                client.pictures.forget()
        pair.tick()
        look()
    pair.fate = lambda to: [0]
    pair.tick(250)
    look()
    assert ended == dict.fromkeys(robot.asked, 1)
    for request in itertools.islice(iter(lambda: robot.asks(10, deadline_ns=NS_PER_S), None), 2):
        pair.submit(request)
        assert answered(pair) == list(range(SPEC.horizon))
