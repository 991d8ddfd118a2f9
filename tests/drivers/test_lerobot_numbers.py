"""A LeRobot device's flat dictionary and parts in SI units: which is which, and the way there and back."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from drivers.lerobot.part_numbers import PartNumbers, SpeedEstimate, add_up
from drivers.lerobot.tables import Known, tables_from_features, tables_from_plain
from robot_runtime.errors import InvalidValueError

SO101 = [f"{name}.pos" for name in ("shoulder_pan", "elbow_flex", "gripper")]
LEKIWI = [f"arm_{name}" for name in SO101] + ["x.vel", "y.vel", "theta.vel"]
NOTHING = Known(unit=None, ranges={}, stroke_m=None, angle_unit=None)
finite = st.floats(-500.0, 500.0)


def known(**said):
    return Known(**{"unit": "deg", "ranges": {}, "stroke_m": 0.08, "angle_unit": "deg"} | said)


@given(st.lists(finite, min_size=3, max_size=3), st.sampled_from(["deg", "rad", "percent"]))
def test_what_is_told_is_what_was_meant_in_every_unit(theirs, unit):
    ranges = {"shoulder_pan": (-1.9, 1.9), "elbow_flex": (2.0, -0.5)}
    tables = tables_from_features(SO101, known(unit=unit, ranges=ranges))
    numbers = PartNumbers(tables, measured=SO101, commanded=SO101, others={})
    observation = dict(zip(SO101, theirs, strict=True))
    assert numbers.action(numbers.read(observation)) == pytest.approx(observation, abs=1e-9)


def test_degrees_per_cent_and_shares_become_radians_and_metres():
    plain = {
        "left_arm": {"joints": ["a"], "unit": "deg"},
        "right_arm": {"joints": ["b.pos"], "unit": "percent", "ranges": [[-1.0, 3.0]]},
        "left_gripper": {"gripper": "g", "closed": 100, "open": 0, "stroke_m": 0.08},
        "right_gripper": {
            "gripper": "h.pos",
            "closed": 0.0,
            "open": 1.2,
            "action": "h.value",
            "action_closed": 0.0,
            "action_open": 1.0,
            "stroke_m": 0.1,
        },
        "base": {"base": ["x.vel", "y.vel", "theta.vel"], "angle_unit": "deg"},
    }
    measured = ["a.pos", "b.pos", "g.pos", "h.pos", "x.vel", "y.vel", "theta.vel"]
    told = [name.replace("h.pos", "h.value") for name in measured]
    numbers = PartNumbers(tables_from_plain(plain), measured=measured, commanded=told, others={})
    read = numbers.read(dict(zip(measured, (90.0, 50.0, 25.0, 0.3, 0.1, 0.2, 180.0), strict=True)))
    expected = {
        "left_arm": [math.pi / 2],
        "right_arm": [2.0],
        "left_gripper": [0.06],
        "right_gripper": [0.025],
        "base": [0.1, 0.2, math.pi],
    }
    assert read.keys() == expected.keys()
    for part, ours in expected.items():
        assert read[part] == pytest.approx(ours)
    assert numbers.action(read)["h.value"] == pytest.approx(0.25)


def test_parts_are_found_by_the_usual_names():
    two_arms = [f"{side}_{name}" for side in ("left", "right") for name in SO101]
    tables = tables_from_features(two_arms, known())
    assert list(tables) == ["left_gripper", "right_gripper", "left_arm", "right_arm"]
    assert tables["right_arm"].joints == ["right_shoulder_pan", "right_elbow_flex"]
    assert tables["right_arm"].names == ["shoulder_pan", "elbow_flex"]
    rover = tables_from_features(LEKIWI, known())
    assert list(rover) == ["gripper", "arm", "base"]
    assert rover["arm"].names == ["shoulder_pan", "elbow_flex"]


@pytest.mark.parametrize(
    ("features", "known", "words"),
    [
        (SO101, known(unit=None), 'shoulder_pan, elbow_flex: joint_unit="deg"'),
        (SO101, known(unit="percent"), "per cent of an undeclared range: declare it, joint_ranges"),
        (SO101, known(stroke_m=None), "how far gripper opens"),
        (LEKIWI, known(angle_unit=None), "declare its base"),
        (["torque"], known(), "declare its parts; it takes torque"),
    ],
)
def test_what_nobody_says_is_asked_for_and_never_guessed(features, known, words):
    with pytest.raises(ValueError, match=words):
        tables_from_features(features, known)


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ({"joints": ["a"]}, "part arm: .*`unit`"),
        ({"joints": ["a"], "unit": "degrees"}, "part arm: .*Invalid enum value"),
        ({"joints": ["a"], "unit": "deg", "gear": 3}, "part arm: .*gear"),
        ({"joints": ["a"], "unit": "percent"}, "part arm: .*need `ranges`"),
        ({"joints": ["a"], "unit": "percent", "ranges": [[1.0, 1.0]]}, "part arm: a scale is finite"),
        ({"joints": ["a"], "names": ["b", "c"], "unit": "deg"}, "part arm: .*names"),
        ({"gripper": "g"}, "part arm: .*stroke_m"),
        ({"gripper": "g", "stroke_m": 70.0}, "part arm: .*below 1 m"),
        ({"gripper": "g", "stroke_m": 0.1, "closed": 100}, "part arm: .*differs between closed and open"),
        ({"base": ["x", "y"], "angle_unit": "deg"}, "part arm: .*length 3"),
        ({"joints": ["a"], "gripper": "g"}, "part arm has one of"),
        ({}, "part arm has one of `joints`, `gripper` and `base`, got nothing"),
    ],
)
def test_tables_that_are_none_are_refused_with_the_name_of_their_part(table, words):
    with pytest.raises(InvalidValueError, match=words):
        tables_from_plain({"arm": table})


def arm(*joints):
    return tables_from_plain({"arm": {"joints": list(joints), "unit": "rad"}})


@pytest.mark.parametrize(
    ("tables", "measured", "told", "others", "words"),
    [
        (arm("a", "b"), ["a.pos"], ["a.pos", "b.pos"], {}, "part arm: it measures no b.pos, but a.pos"),
        (arm("a", "b"), ["a.pos", "b.pos"], ["a.pos"], {}, "part arm: it takes no b.pos, but a.pos"),
        (arm("a"), ["a.pos"], ["a.pos", "gain"], {}, "also takes gain: .*others={'gain': 0.0}"),
        (arm("a"), ["a.pos"], ["a.pos"], {"gain": 1.0}, "takes no gain, but a.pos"),
        (arm("a", "a.pos"), ["a.pos"], ["a.pos"], {}, "belong to one part each"),
    ],
)
def test_features_that_do_not_fit_are_named(tables, measured, told, others, words):
    with pytest.raises(ValueError, match=words):
        PartNumbers(tables, measured=measured, commanded=told, others=others)


def test_speeds_are_those_that_are_measured_and_what_else_is_told_is_as_declared():
    features = ["a.pos", "a.vel", "gain"]
    numbers = PartNumbers(arm("a"), measured=features, commanded=features, others={"gain": 2.0})
    assert numbers.speeds({"a.pos": 1.0, "a.vel": 0.5, "gain": 0.0}) == {"arm": [0.5]}
    assert numbers.action({"arm": [1.0]}) == {"a.pos": 1.0, "a.vel": 0.0, "gain": 2.0}


@given(st.floats(-3.0, 3.0), st.integers(5, 40))
def test_estimated_speeds_are_right_within_a_step_of_the_encoder_over_the_window(speed, period_ms):
    estimate, step = SpeedEstimate(), math.tau / 4096
    for k in range(40):
        t_ns = k * period_ms * 1_000_000
        (dq,) = estimate.take(t_ns, [round(speed * t_ns / 1e9 / step) * step])
    assert dq == pytest.approx(speed, abs=1.01 * step / 0.05)


def test_a_clock_that_stands_gives_no_speed():
    estimate = SpeedEstimate()
    assert estimate.take(5, [1.0]) == [0.0]
    assert estimate.take(5, [2.0]) == [0.0]


def test_twists_add_up_to_a_circle():
    x = [0.0, 0.0, 0.0]
    for _ in range(1000):
        x = add_up(x, [0.5, 0.0, math.tau / 10], 0.01)
    np.testing.assert_allclose(x, [0.0, 0.0, math.tau], atol=1e-9)
    np.testing.assert_allclose(add_up([0, 0, math.pi / 2], [1.0, 0.5, 0.0], 2.0), [-1.0, 2.0, math.pi / 2])
