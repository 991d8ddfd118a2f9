"""What is warmed up when; without a policy, and time is an integer."""

import pytest

from policies.scripted import HoldPolicy
from robot_runtime.core.method.capabilities import Capabilities
from robot_runtime.core.method.sampler_parts import (
    AveragedSamples,
    ClampedPrefix,
    ConstantSchedule,
    HorizonAwareSchedule,
    RtcGuidance,
)
from robot_runtime.core.policy_info import PolicyInfo
from robot_runtime.server.warming import (
    NUM_CALLS,
    NUM_MORE_CALLS,
    PATIENCE_NS,
    Called,
    Piece,
    Warming,
)

MS = 1_000_000
SPEC = HoldPolicy().info.action_spec
SAMPLERS = (ConstantSchedule, RtcGuidance, AveragedSamples, HorizonAwareSchedule)
USUAL = Piece(kind=HorizonAwareSchedule)


def warming(*, max_batch: int = 4, num_shapes: int = 0, samplers: tuple[type, ...] = SAMPLERS) -> Warming:
    can = Capabilities(samplers=samplers, max_inference_delay=4)
    info = PolicyInfo(name="slow", action_spec=SPEC, capabilities=can)
    return Warming(info, max_batch=max_batch, num_shapes=num_shapes)


def call(warming: Warming, *, first_ms: int = 10, ms: int = 10) -> tuple[Piece, list[str]]:
    """All calls of the next piece, and what is said of them."""
    piece, said = warming.next(), list[str]()
    assert piece is not None
    while warming.next() == piece:
        said += filter(None, [warming.called(Called(piece=piece, took_ns=first_ms * MS))])
        first_ms = ms
    return piece, said


def opened(**options) -> Warming:
    """As a server is when it opens: what one call takes is known, and what the first one took longer."""
    out, took_ms = warming(**options), [20_000, *[10] * NUM_CALLS]
    while not out.is_open:
        out.called(Called(piece=USUAL, took_ns=took_ms.pop(0) * MS))
    return out


def due(
    of: Warming, now_ns: int, *, is_waiting=False, is_in_turn=True, num_robots=1, quiet_ns=0
) -> int | None:
    piece = of.next()
    assert piece is not None
    how = {"is_waiting": is_waiting, "is_in_turn": is_in_turn}
    return of.due_ns(piece, now_ns, **how, num_robots=num_robots, quiet_ns=quiet_ns)


def test_the_usual_method_of_one_robot_is_first_and_smaller_work_comes_before_larger():
    order, of = list[Piece](), warming()
    while of.next() is not None:
        order.append(call(of)[0])
    assert order == [
        USUAL,
        Piece(kind=ConstantSchedule),
        Piece(kind=RtcGuidance),
        Piece(kind=AveragedSamples),
        Piece(kind=HorizonAwareSchedule, size=2),
        Piece(kind=HorizonAwareSchedule, size=4),
    ]
    assert of.warm == (HorizonAwareSchedule, ConstantSchedule, RtcGuidance, AveragedSamples)
    assert (of.max_size, of.num_left) == (4, 0)


def test_larger_shapes_come_behind_smaller_ones_but_for_what_one_robot_usually_asks():
    order, of = list[Piece](), warming(max_batch=2, num_shapes=2, samplers=(ConstantSchedule, ClampedPrefix))
    while of.next() is not None:
        order.append(call(of)[0])
    usual, other = ClampedPrefix, ConstantSchedule
    assert [(p.kind, p.size, p.shape) for p in order] == [
        (usual, 1, 0), (usual, 1, 1), (other, 1, 0), (usual, 2, 0), (other, 1, 1), (usual, 2, 1),
    ]  # fmt: skip


def test_robots_are_answered_as_soon_as_the_usual_method_is_warm_for_one_of_them():
    of = warming()
    for _ in range(NUM_CALLS - 1):
        assert of.called(Called(piece=USUAL, took_ns=10 * MS)) is None
        assert not of.is_open
    assert (
        of.called(Called(piece=USUAL, took_ns=10 * MS)) == "HorizonAwareSchedule is warm; 5 left to warm up"
    )
    assert of.is_open
    assert (of.times.max_size, of.times.by_size[1]) == (1, 10 * MS)


def test_a_piece_that_takes_long_waits_until_nobody_has_asked_for_a_while():
    of = opened()  # the first call of another kind may take 20 s as well
    assert due(of, 0, is_waiting=True) is None
    assert due(of, 5, quiet_ns=8) == 8
    assert due(of, 9, quiet_ns=8) == 9


def test_a_short_piece_goes_between_two_batches_and_never_two_of_them_in_a_row():
    of = opened()
    call(of)  # of this kind the first call took no longer than the next
    of.want(HorizonAwareSchedule, 2)
    assert of.expected_ns(of.next()) == PATIENCE_NS
    assert due(of, 7, is_waiting=True, quiet_ns=99) == 7
    assert due(of, 7, is_waiting=True, is_in_turn=False) is None
    assert due(of, 7, is_waiting=False, is_in_turn=False, quiet_ns=99) == 7


def test_for_as_many_robots_a_piece_may_take_as_long_as_one_request_of_each():
    of = opened()
    call(of)
    of.want(HorizonAwareSchedule, 4)
    assert due(of, 7, is_waiting=True, num_robots=3) is None
    assert due(of, 7, is_waiting=True, num_robots=4) == 7


@pytest.mark.parametrize(("num_shapes", "is_due"), [(0, True), (1, False)])
def test_a_method_that_finds_the_code_of_another_does_not_make_what_is_left_look_quick(
    num_shapes: int, is_due: bool
):
    of = opened(num_shapes=num_shapes, samplers=(ConstantSchedule, HorizonAwareSchedule))
    assert call(of)[0] == Piece(kind=ConstantSchedule)  # as quick at first as later
    assert of.next() == Piece(kind=HorizonAwareSchedule, size=2)
    assert (due(of, 7, is_waiting=True, num_robots=4) == 7) == is_due


def test_the_first_backward_pass_is_taken_for_long():
    of = opened()
    call(of)
    assert of.next() == Piece(kind=RtcGuidance)
    assert due(of, 7, is_waiting=True, num_robots=4) is None
    assert due(of, 7, quiet_ns=9) == 9


def test_of_a_policy_with_shapes_robots_get_only_batches_that_are_warm_and_what_they_lack_is_next():
    of = opened(num_shapes=1)
    guided = RtcGuidance()
    assert of.is_held(RtcGuidance)
    of.want(RtcGuidance)
    assert of.next() == Piece(kind=RtcGuidance)
    call(of)
    assert not of.is_held(RtcGuidance)
    of.want(RtcGuidance, 3)  # nobody has planned that
    assert of.next() == Piece(kind=RtcGuidance, size=2)
    assert of.times.fitting(3, guided) == 1
    call(of)
    assert [of.times.fitting(n, guided) for n in (1, 2, 3, 9)] == [1, 2, 2, 2]
    of.want(RtcGuidance, 2)
    assert of.next() != Piece(kind=RtcGuidance, size=2)  # it is warm
    assert of.times.fitting(4, HorizonAwareSchedule()) == 1


def test_of_any_other_policy_nothing_is_held_and_a_batch_may_have_any_size_up_to_what_was_measured():
    of = opened()
    assert not of.is_held(RtcGuidance)
    while of.next() is not None:
        call(of)
    assert [of.times.fitting(n, RtcGuidance()) for n in (1, 3, 4, 9)] == [1, 3, 4, 4]
    assert NUM_MORE_CALLS < NUM_CALLS


def test_what_batches_have_taken_is_still_known_when_more_is_warm():
    of = opened()
    of.times.note(1, ConstantSchedule(), 70 * MS)
    call(of)
    assert of.times.expected_ns(1, ConstantSchedule()) == 70 * MS


TWO = Piece(kind=HorizonAwareSchedule, size=2)


@pytest.mark.parametrize("num_shapes", [0, 1])
def test_no_larger_batch_is_made_than_one_that_takes_too_long(num_shapes: int):
    of = opened(max_batch=8, num_shapes=num_shapes)
    while call(of, first_ms=900, ms=900)[0] != TWO:
        pass
    of.want(HorizonAwareSchedule, 4)
    assert of.next() is None
    assert of.max_size == 2


@pytest.mark.parametrize("num_shapes", [0, 1])
def test_no_batch_is_made_of_a_size_that_failed_or_a_larger_one(num_shapes: int):
    of = opened(max_batch=8, num_shapes=num_shapes)
    while of.next() != TWO:
        call(of)
    said = of.called(Called(piece=TWO, error=MemoryError("no room")))
    assert said == "HorizonAwareSchedule for 2 robots at a time cannot be warmed up: no room"
    of.want(HorizonAwareSchedule, 2)
    of.want(HorizonAwareSchedule, 4)
    assert of.next() is None
    assert of.max_size == 1


def test_a_method_that_fails_while_it_is_warmed_up_is_not_held_for_ever():
    of = opened(num_shapes=1)
    of.want(RtcGuidance)
    of.called(Called(piece=Piece(kind=RtcGuidance), error=ValueError("no gradient")))
    assert not of.is_held(RtcGuidance)
    assert RtcGuidance not in of.warm
    of.want(RtcGuidance)
    assert of.next() != Piece(kind=RtcGuidance)


def test_passes_of_the_network_are_counted_by_the_part_that_names_no_steps():
    of = warming(samplers=(AveragedSamples, HorizonAwareSchedule))
    call(of)
    piece = of.next()
    for _ in range(NUM_CALLS):
        of.called(Called(piece=piece, took_ns=10 * MS, num_evaluations=16 * 10))
    assert of.times.unusual_ns(AveragedSamples(num_steps=20)) == 20 * MS
