"""What a robot is told of a hand that comes down beside what it is to take, or let go of."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from calibration.labels.grip import commanded_width
from policies.flow.demonstrations import StoredDemonstration
from robot_runtime.core.values.transforms import compose_planar
from sim.capture.retargeted import RetargetedDemonstration
from sim.capture.samples import (
    HOVER,
    MISS_MAX,
    MISS_MIN,
    MISS_UP,
    ROWS_AFTER,
    ROWS_BEFORE,
    SPEED,
    Grip,
    grips_of,
    retry,
    samples,
)
from sim.experts.mobile import SQUEEZE
from sim.experts.motion import DT_S, HORIZON
from sim.scene.kinematics import R_DOWN
from sim.scene.mobile_base import SPEED_MAX
from sim.scene.model import MAX_WIDTH
from sim.tasks.household import TABLE_Z
from tests.examples import examples

N = 140
CLOSES, HOLDS, OPENS, OPEN = 38, 44, 92, 98
"""Rows before which fingers are open, from which on they hold, until which they do, and are open again."""
LOW, HIGH = TABLE_Z + 0.05, TABLE_Z + 0.25
CUP, TRAY = np.array([1.0, 0.4, LOW - 0.01]), np.array([1.3, -0.2, LOW - 0.01])


@cache
def told() -> RetargetedDemonstration:
    """Somebody who takes a cup, carries it to a tray and lets it go, her feet still."""
    rows = np.arange(N)
    z = np.interp(
        rows, [0, 20, 34, 48, 60, 70, 88, 102, 120], [HIGH, HIGH, LOW, LOW, HIGH, HIGH, LOW, LOW, HIGH]
    )
    share = np.interp(rows, [60, 70], [0.0, 1.0])[:, None]
    p = np.column_stack([(1 - share) * CUP[:2] + share * TRAY[:2], z])
    cup = np.where(rows[:, None] < HOLDS, CUP, np.where(rows[:, None] < OPENS, p - [0.0, 0.0, 0.01], TRAY))
    points = ("door", "door>through", "door>table_a", "door>table_b")
    return RetargetedDemonstration(
        words="bring the cup",
        task="fetch",
        x_WB=np.tile([0.5, 0.1, 0.3], (N, 1)),
        p_WE=p,
        R_BE=np.tile(R_DOWN, (N, 1, 1)),
        width=np.interp(rows, [CLOSES, HOLDS, OPENS, OPEN], [MAX_WIDTH, 0.06, 0.06, MAX_WIDTH]),
        things={
            "cup": cup,
            "tray": np.tile(TRAY, (N, 1)),
            **{name: np.tile([3.0 + i, 1.0, 0.8], (N, 1)) for i, name in enumerate(points)},
        },
        is_known=np.ones(N, dtype=bool),
    )


def grips(one: RetargetedDemonstration) -> list[Grip]:
    command = commanded_width(one.width, 0.05)
    return list(grips_of(one, command, command < one.width - 0.5 * SQUEEZE))


def way(sample: StoredDemonstration) -> np.ndarray:
    """Where rows lead the hand, in W: (32, 3) [m]."""
    x_now = np.asarray(sample.observation.state.x_WB)
    bases = [compose_planar(x_now, row[:3]) for row in sample.rows]
    hands = [compose_planar(x, np.array([*row[3:5], 0.0])) for x, row in zip(bases, sample.rows, strict=True)]
    return np.column_stack([np.array(hands)[:, :2], sample.rows[:, 5]])


def place(sample: StoredDemonstration, p_B: np.ndarray) -> np.ndarray:
    x_now = np.asarray(sample.observation.state.x_WB)
    return np.array([*compose_planar(x_now, np.array([*p_B[:2], 0.0]))[:2], p_B[2]])


def hand(sample: StoredDemonstration) -> np.ndarray:
    X_BE = sample.observation.state.X_BE
    assert X_BE is not None
    return place(sample, X_BE.translation)


def cup(sample: StoredDemonstration) -> np.ndarray:
    return place(sample, sample.observation.environment_state[:3])


def missed(one: RetargetedDemonstration, times: int = 3) -> list[tuple[int, StoredDemonstration]]:
    """Frames told with the hand beside a grip, with their numbers."""
    told_as_it_was = sum(one.is_known[k : k + HORIZON].all() for k in range(len(one)))
    beside = samples(one, np.random.default_rng(0), missed=times)[told_as_it_was:]
    return [(sample.observation.state.t_ns // 50_000_000, sample) for sample in beside]


def test_what_is_taken_and_let_go_is_found():
    takes, lets_go = grips(told())
    assert (takes.thing, takes.takes, lets_go.thing, lets_go.takes) == ("cup", True, "cup", False)
    assert abs(takes.begins - CLOSES) <= 1
    assert abs(takes.ends - HOLDS) <= 1
    assert abs(lets_go.begins - OPENS) <= 3
    assert abs(lets_go.ends - OPEN) <= 2
    for grip in (takes, lets_go):
        assert told().p_WE[grip.above, 2] > LOW + HOVER >= told().p_WE[grip.above + 1, 2]


def test_fingers_that_close_far_from_everything_take_nothing():
    afar = {name: p + 0.1 for name, p in told().things.items()}
    assert grips(replace(told(), things=afar)) == []


def test_letting_go_of_a_handle_is_not_tried_again():
    """Its drawer stays open: nothing is brought back to it."""
    things = {"handle": told().things["cup"], "door": told().things["door"]}
    assert [grip.takes for grip in grips(replace(told(), things=things))] == [True]


@given(
    number=st.integers(0, 1),
    at=st.floats(0.0, 1.0),
    angle=st.floats(0.0, 2 * np.pi),
    aside=st.floats(MISS_MIN, MISS_MAX),
    up=st.floats(0.0, MISS_UP),
)
def test_a_hand_beside_goes_up_and_back_over_the_grip_before_it_goes_down(number, at, angle, aside, up):
    one, grip = told(), grips(told())[number]
    k = grip.frames[round(at * (len(grip.frames) - 1))]
    off = np.array([aside * np.cos(angle), aside * np.sin(angle), up])
    led = retry(one, grip, k, off)
    np.testing.assert_allclose(led.p_WE[0], one.p_WE[k] + off, atol=1e-12)
    across = np.linalg.norm((led.p_WE - one.p_WE[grip.begins])[:, :2], axis=1)
    down = led.p_WE[:, 2] < LOW + 0.6 * HOVER
    has_been_up = np.maximum.accumulate(~down)
    assert (across[down & has_been_up] < 0.01).all()
    over = np.flatnonzero(led.at == grip.above)[-1]
    assert (np.diff(led.at[over:]) == 1).all()  # from there as she went


@given(number=st.integers(0, 1), after=st.integers(0, 5), angle=st.floats(0.0, 2 * np.pi))
def test_a_low_hand_takes_its_time_back_and_is_up_before_it_is_half_across(number, after, angle):
    one, grip = told(), grips(told())[number]
    k = grip.frames[-1 - after]
    led = retry(one, grip, k, MISS_MAX * np.array([np.cos(angle), np.sin(angle), 0.0]))
    goes_down = np.flatnonzero(led.at == grip.above)[-1]
    assert goes_down * DT_S >= np.linalg.norm(led.p_WE[0] - one.p_WE[grip.above]) / SPEED
    across = np.linalg.norm((led.p_WE - one.p_WE[grip.above])[:, :2], axis=1)
    is_half_across = np.argmax(across < 0.5 * across[0])
    assert led.p_WE[is_half_across, 2] > LOW + 0.9 * HOVER


def test_fingers_do_not_close_beside_the_cup():
    """The rows of every frame around the grip open them until the hand is at it."""
    grip = grips(told())[0]
    seen = [(k, sample) for k, sample in missed(told()) if k in grip.frames]
    assert len(seen) == 3 * (ROWS_BEFORE + grip.ends - grip.begins + ROWS_AFTER)
    closes = 0
    for _, sample in seen:
        closing = sample.rows[:, 12] < MAX_WIDTH - 1e-3
        off = np.linalg.norm((way(sample) - told().p_WE[grip.begins])[:, :2], axis=1)
        assert (off[closing] < 0.012).all()
        closes += closing[-1]
    assert closes > 0.9 * len(seen)  # and they do close, once it is


def test_the_cup_stays_where_it_was_when_the_hand_comes_down_beside_it():
    grip, offs = grips(told())[0], []
    for k, sample in missed(told()):
        if k not in grip.frames:
            continue
        np.testing.assert_allclose(cup(sample), CUP, atol=1e-9)
        offs.append(np.linalg.norm((hand(sample) - told().p_WE[k])[:2]))
    assert MISS_MIN < min(offs) < 0.03
    assert 0.06 < max(offs) < MISS_MAX


def test_what_moves_with_a_handle_has_not_moved_when_the_hand_is_beside_it():
    """A cup in the drawer is seen where it is while the drawer is shut."""
    grip = grips(told())[0]
    pulled = told().things["cup"] + np.where(np.arange(N) > HOLDS, 0.1, 0.0)[:, None] * [0.0, 1.0, 0.0]
    for k, sample in missed(replace(told(), things={**told().things, "tray": pulled})):
        if k in grip.frames:
            tray = place(sample, sample.observation.environment_state[3:6])
            np.testing.assert_allclose(tray, CUP, atol=1e-9)


def test_fingers_that_closed_beside_the_cup_are_seen_narrower_than_it_is():
    grip = grips(told())[0]
    widths = [
        s.observation.state.gripper("gripper").width
        for k, s in missed(told())
        if grip.ends < k < OPENS - ROWS_BEFORE
    ]
    assert widths
    assert max(widths) < 0.06 - 0.5 * SQUEEZE


def test_a_cup_that_is_beside_its_place_is_carried_there_before_it_is_let_go():
    grip = grips(told())[1]
    seen = [(k, sample) for k, sample in missed(told()) if k in grip.frames]
    assert len(seen) == 3 * ROWS_BEFORE
    for k, sample in seen:
        np.testing.assert_allclose(
            hand(sample) - cup(sample), told().p_WE[k] - told().things["cup"][k], atol=1e-9
        )
        opens = sample.rows[:, 12] > 0.06 + 1e-3
        off = np.linalg.norm((way(sample) - told().p_WE[grip.begins])[:, :2], axis=1)
        assert opens[-1]
        assert (off[opens] < 0.012).all()


@pytest.mark.long
@examples(30)
@given(lost=st.integers(0, N - 1), length=st.integers(1, 6), said=st.sampled_from([0.0, np.nan]))
def test_widths_that_are_not_known_are_not_taken_for_a_grip(lost, length, said):
    """In all that is told fingers close at the cup and open at the tray, and nowhere else."""
    known, width = np.ones(N, dtype=bool), np.array(told().width)
    known[lost : lost + length] = False
    width[~known] = said
    for k, sample in missed(replace(told(), is_known=known, width=width), times=1):
        assert known[k : k + HORIZON].all()
        is_open = sample.rows[:, 12] > 0.07
        hand_at = way(sample)[1:, :2]
        assert (
            np.linalg.norm(hand_at[np.diff(is_open.astype(int)) < 0] - CUP[:2], axis=-1).max(initial=0.0)
            < 0.015
        )
        assert (
            np.linalg.norm(hand_at[np.diff(is_open.astype(int)) > 0] - TRAY[:2], axis=-1).max(initial=0.0)
            < 0.015
        )


def stretched(one: RetargetedDemonstration, at: int, rows: int) -> RetargetedDemonstration:
    """The same, still for so many rows."""

    def longer(each: np.ndarray) -> np.ndarray:
        return np.concatenate([each[:at], np.repeat(each[at : at + 1], rows, axis=0), each[at:]])

    names = ("x_WB", "p_WE", "R_BE", "width", "is_known")
    more = {name: longer(getattr(one, name)) for name in names}
    return replace(one, things={name: longer(p) for name, p in one.things.items()}, **more)


@pytest.mark.parametrize("rows", [20, 60])
def test_a_hand_that_waits_low_before_fingers_close_is_still_led_up_and_over(rows):
    one = stretched(told(), CLOSES - 4, rows)
    grip = grips(one)[0]
    for k in grip.frames:
        led = retry(one, grip, k, np.array([0.06, 0.0, 0.0]))
        across = np.linalg.norm((led.p_WE - one.p_WE[grip.begins])[:, :2], axis=1)
        is_between = (across > MISS_MIN) & (across < 0.05)
        assert (led.p_WE[is_between, 2] > LOW + 0.6 * HOVER).all()


def test_a_hand_that_was_never_over_what_it_takes_is_told_no_retry():
    one = told()
    aside = replace(one, p_WE=np.column_stack([one.p_WE[:, :2], np.full(N, LOW)]))
    assert grips(aside) == []


@pytest.mark.parametrize("gap", [2, 8])
def test_fingers_that_take_again_do_so_where_the_cup_is(gap):
    """They open a little to set it right, and close again."""
    rows, again = np.arange(N), [50, 50 + gap, 55 + gap]
    width = np.interp(
        rows,
        [CLOSES, HOLDS, 47, *again, OPENS, OPEN],
        [MAX_WIDTH, 0.06, 0.06, 0.075, 0.075, 0.06, 0.06, MAX_WIDTH],
    )
    z = np.interp(
        rows, [0, 20, 34, 66, 78, 80, 88, 102, 120], [HIGH, HIGH, LOW, LOW, HIGH, HIGH, LOW, LOW, HIGH]
    )
    share = np.interp(rows, [72, 80], [0.0, 1.0])[:, None]
    p = np.column_stack([(1 - share) * CUP[:2] + share * TRAY[:2], z])
    moves = (rows[:, None] >= 64) & (rows[:, None] < OPENS)
    there = np.where(moves, p - [0, 0, 0.01], np.where(rows[:, None] < OPENS, CUP, TRAY))
    one = replace(told(), width=width, p_WE=p, things={**told().things, "cup": there})
    seen = [sample for _, sample in missed(one, times=1)]
    assert seen
    for sample in seen:
        is_closed = sample.rows[:, 12] < 0.07
        closes = np.flatnonzero(np.diff(is_closed.astype(int)) > 0)
        if len(closes) and not is_closed[0]:
            assert np.linalg.norm((way(sample)[closes[0] + 1] - cup(sample))[:2]) < 0.015


@pytest.mark.parametrize(("axis", "speed"), [(0, 0.6), (2, 0.9)])
def test_a_base_that_moved_at_the_grip_goes_back_no_faster_than_it_can(axis, speed):
    go = np.interp(np.arange(N), [22, 46], [0.0, 24 * DT_S * speed])
    one = replace(told(), x_WB=told().x_WB + go[:, None] * np.eye(3)[axis])
    steps = [np.abs(np.diff(sample.rows[:, axis])).max() for _, sample in missed(one, times=1)]
    assert max(steps) < DT_S * SPEED_MAX[axis]


@pytest.mark.parametrize("opens", [0.06, 0.072, 0.1])
def test_a_gripper_that_opens_otherwise_takes_and_lets_go(opens):
    one = replace(told(), width=told().width * opens / MAX_WIDTH)
    assert [grip.takes for grip in grips(one)] == [True, False]


@pytest.mark.parametrize("num", [0, 1, 2])
def test_what_is_too_short_for_a_sample_has_none(num):
    one, names = told(), ("x_WB", "p_WE", "R_BE", "width", "is_known")
    cut = {name: getattr(one, name)[:num] for name in names}
    short = replace(one, things={name: p[:num] for name, p in one.things.items()}, **cut)
    assert len(samples(short, np.random.default_rng(0), missed=1)) <= num


@pytest.mark.long
@examples(30)
@given(end=st.integers(HOLDS + 2, N))
def test_a_demonstration_may_end_anywhere_after_its_grip(end):
    one = told()
    cut = {"p_WE", "x_WB", "R_BE", "width", "is_known"}
    short = replace(
        one,
        things={name: p[:end] for name, p in one.things.items()},
        **{name: getattr(one, name)[:end] for name in cut},
    )
    frames = [k for k, _ in missed(short, times=1)]
    assert frames
    assert max(frames) < end
