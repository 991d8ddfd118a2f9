"""`--method auto`: always a method the policy supports, always a reason, never worse for more room."""

from typing import get_args

import pinocchio as pin
import pytest
from hypothesis import given
from hypothesis import strategies as st

from robot_runtime.core.method.capabilities import Capabilities, resolve_method
from robot_runtime.core.method.choose import (
    Auto,
    Choice,
    Default,
    choose_method,
    default_for,
    method_or_choice,
)
from robot_runtime.core.method.request_parts import LastTarget, TrackingLag
from robot_runtime.core.method.sampler_parts import (
    AveragedSamples,
    BestOfSamples,
    ClampedPrefix,
    ConstantSchedule,
    HorizonAwareSchedule,
    LambdaMaskedPrefix,
    PrefixPreservedStart,
    RtcGuidance,
    SamplerPart,
)
from robot_runtime.core.method.splice_parts import TemporalEnsembling
from robot_runtime.core.method.table import METHODS, method_named
from robot_runtime.core.plan.request_planner import RequestPlanner
from robot_runtime.core.values.action import ActionSpec, JointPosition
from robot_runtime.errors import InvalidValueError
from tests.core.support import SPEC, TICK, answer, executor, observation_at, ramp, state_at

MS = 1_000_000
DT = 50 * MS
ANY = (ConstantSchedule, RtcGuidance, BestOfSamples, AveragedSamples)
LAG = TrackingLag(time_constant_s=0.03)
CAPABILITIES = st.builds(
    Capabilities,
    samplers=st.lists(st.sampled_from(get_args(SamplerPart)), min_size=1, unique=True).map(tuple),
    max_inference_delay=st.integers(0, 31),
    recipe=st.sampled_from(["", "prefix", "offset"]),
    roll_forward=st.sampled_from([None, LAG, LastTarget()]),
)
LATENCIES = st.integers(0, 3_000 * MS)


def chosen(can: Capabilities, latency_ms: float, *, horizon: int = 32, **options) -> Choice:
    return choose_method(can, latency_ns=round(latency_ms * MS), dt_ns=DT, horizon=horizon, **options)


def trained(*extra, delay: int = 12, recipe: str = "", roll_forward=None) -> Capabilities:
    return Capabilities(
        samplers=(*ANY, *extra), max_inference_delay=delay, recipe=recipe, roll_forward=roll_forward
    )


@pytest.mark.parametrize(
    ("can", "latency_ms", "name", "words"),
    [
        (trained(ClampedPrefix, recipe="prefix"), 300, "pipelined-prefix", "300 ms, d = 6 rows"),
        (trained(ClampedPrefix, recipe="prefix"), 600, "pipelined-prefix", "d = 12"),
        (trained(ClampedPrefix, recipe="prefix"), 601, "pipelined-prefix", "cut to the 12 rows its training"),
        (trained(roll_forward=LAG), 601, "pipelined-rtc", "more than the 12 rows its training covers"),
        (trained(ClampedPrefix, HorizonAwareSchedule), 300, "pipelined-faster", "first rows come early"),
        (trained(PrefixPreservedStart), 300, "pipelined-rtc", "without training"),
        (trained(LambdaMaskedPrefix), 300, "pipelined-rtc", "without training"),
        (trained(roll_forward=LAG), 300, "vlash", "states rolled forward"),
        (trained(delay=0), 300, "pipelined-rtc", "draws every new chunk to the plan without training"),
        (trained(delay=0), 750, "pipelined-rtc", "750 ms, d = 15 rows"),
        (trained(delay=0), 751, "synchronous", "d <= s <= H - 1 - d has no solution with chunks of H = 32"),
        (Capabilities(samplers=(ConstantSchedule,)), 300, "cross-fade", "one schedule only"),
        (trained(ClampedPrefix), 49, "cross-fade", "less than one row"),
        (Capabilities(samplers=(ClampedPrefix,)), 300, "synchronous", "no asynchronous method"),
    ],
)
def test_each_kind_of_policy_gets_the_method_that_the_evidence_is_for(can, latency_ms, name, words):
    choice = chosen(can, latency_ms)
    assert choice.name == name
    assert words in choice.reason


def test_vlash_rolls_forward_as_the_policy_was_trained():
    assert chosen(trained(roll_forward=LAG), 300).method.request.model == LAG


@given(CAPABILITIES, LATENCIES, st.integers(1, 64), st.none() | st.integers(1, 4))
def test_always_a_method_that_the_policy_supports_and_always_one_line_of_reason(can, latency_ns, horizon, s):
    s = None if s is None else min(s, horizon)
    choice = choose_method(can, latency_ns=latency_ns, dt_ns=DT, horizon=horizon, execution_horizon=s)
    assert choice.name in METHODS
    assert can.misfit(choice.method) is None
    assert f"{latency_ns / MS:.0f} ms" in choice.reason
    assert "\n" not in str(choice)


@given(CAPABILITIES, LATENCIES, LATENCIES, st.integers(1, 64))
def test_a_robot_that_stands_still_at_a_latency_does_so_at_a_longer_one(can, a, b, horizon):
    short, long = sorted((a, b))
    names = [choose_method(can, latency_ns=t, dt_ns=DT, horizon=horizon).name for t in (short, long)]
    if names[0] == "synchronous":
        assert names[1] == "synchronous"


@given(CAPABILITIES, LATENCIES, st.integers(1, 64), st.integers(1, 64))
def test_longer_chunks_never_make_a_robot_stand_still(can, latency_ns, a, b):
    short, long = sorted((a, b))
    names = [choose_method(can, latency_ns=latency_ns, dt_ns=DT, horizon=h).name for h in (short, long)]
    if names[0] != "synchronous":
        assert names[1] != "synchronous"


@given(CAPABILITIES, LATENCIES, st.integers(8, 64))
def test_the_planner_takes_what_was_chosen(can, latency_ns, horizon):
    choice = choose_method(can, latency_ns=latency_ns, dt_ns=DT, horizon=horizon)
    RequestPlanner(
        part=choice.method.request,
        action_spec=ActionSpec(fields=(JointPosition(2),), horizon=horizon, dt_ns=DT),
        max_inference_delay=can.trained_delay(choice.method),
        hand_pose=lambda q: pin.SE3.Identity(),
    )


def test_numbers_that_mean_nothing_are_refused():
    with pytest.raises(InvalidValueError, match="0 samplers"):
        choose_method(Capabilities(samplers=()), latency_ns=0, dt_ns=DT, horizon=8)
    with pytest.raises(InvalidValueError, match="latency >= 0"):
        choose_method(trained(), latency_ns=-1, dt_ns=DT, horizon=8)


def test_auto_is_a_name_beside_those_of_the_methods():
    assert method_or_choice("auto", execution_horizon=3) == Auto(execution_horizon=3)
    assert method_or_choice("naive", execution_horizon=3) == method_named("naive", execution_horizon=3)
    assert chosen(trained(), 300, execution_horizon=3).method.request.when.rows == 3


@pytest.mark.parametrize("name", ["vlash", "vlash-fixed-overlap", "pipelined-prefix"])
def test_a_method_that_the_policy_was_not_made_for_is_refused_with_those_that_it_supports(name):
    with pytest.raises(InvalidValueError, match=r"'toy', recipe plain,.*supports the methods .*naive.*rtc"):
        resolve_method(METHODS[name], trained(recipe="plain"), policy="toy")


def test_a_method_that_corrects_rows_is_listed_only_by_a_policy_that_came_with_a_head():
    assert "a2c2" in Capabilities(samplers=ANY, recipe="residual").methods()
    assert "a2c2" not in Capabilities(samplers=ANY, recipe="prefix").methods()


@pytest.mark.parametrize(
    ("samplers", "name"),
    [
        ((ConstantSchedule, ClampedPrefix, HorizonAwareSchedule), "pipelined-faster"),
        ((ConstantSchedule, ClampedPrefix), "pipelined-prefix"),
        ((ConstantSchedule,), "cross-fade"),
    ],
)
def test_the_default_is_the_method_that_the_policy_was_trained_for(samplers, name):
    choice = default_for(Default(), Capabilities(samplers=samplers))
    assert choice.name == name
    assert choice.method == METHODS[name]
    assert method_or_choice("default", execution_horizon=3) == Default(execution_horizon=3)
    rarer = default_for(Default(execution_horizon=3), Capabilities(samplers=samplers)).method
    assert rarer.request.when.rows == 3


def test_the_default_asks_as_often_as_the_policy_wants_it_unless_the_user_says_how_often():
    can = Capabilities(samplers=(ClampedPrefix,), execution_horizon=4)
    choice = default_for(Default(), can)
    assert choice.method == method_named("pipelined-prefix", execution_horizon=4)
    assert "every 4 rows" in choice.reason
    choice = default_for(Default(execution_horizon=2), can)
    assert choice.method == method_named("pipelined-prefix", execution_horizon=2)
    assert "every" not in choice.reason
    with pytest.raises(InvalidValueError, match="at least 1 row, got 0"):
        default_for(Default(execution_horizon=0), can)


def test_auto_asks_as_often_as_the_policy_wants_it_where_it_picks_its_default():
    can = Capabilities(samplers=(*ANY, ClampedPrefix), max_inference_delay=12, execution_horizon=4)
    choice = chosen(can, 300)
    assert choice.method == method_named("pipelined-prefix", execution_horizon=4)
    assert "best asked every 4 rows" in choice.reason
    assert chosen(can, 300, execution_horizon=2).method.request.when.rows == 2
    assert chosen(can, 10).method == METHODS["cross-fade"]  # for which the policy declares nothing
    assert chosen(can, 1500).method.request == METHODS["synchronous"].request


def test_a_policy_that_takes_no_default_method_says_what_it_takes():
    with pytest.raises(InvalidValueError, match="it supports remac"):
        default_for(Default(), Capabilities(samplers=(PrefixPreservedStart,)))


def test_a_policy_made_to_be_averaged_over_its_chunks_is_so_by_default():
    choice = default_for(Default(), Capabilities(samplers=(ConstantSchedule,), temporal_ensemble=0.05))
    assert choice.name == "temporal-ensembling"
    assert choice.method.blend == TemporalEnsembling(m=0.05)
    assert "m = 0.05" in choice.reason


@pytest.mark.parametrize("latency_ms", [20, 150, 400])
@pytest.mark.parametrize("speed", [0.1, 0.5, 1.5])
def test_the_default_of_a_policy_trained_for_nothing_never_leads_a_lagging_arm_back(latency_ms, speed):
    """An arm 60 ms behind its setpoint, and a policy whose rows continue from the measured arm."""
    can = Capabilities(samplers=(ConstantSchedule,))
    spec = ActionSpec(fields=SPEC.fields, horizon=32, dt_ns=DT)
    robot = executor(default_for(Default(), can).method, action_spec=spec)
    robot.reset(state_at(0), 0)
    q, before, wire = 0.0, 0.0, []
    for t in range(0, 6_000 * MS, TICK):
        for item in [item for item in wire if item[0] <= t]:
            wire.remove(item)
            robot.on_part(answer(item[1], ramp(item[2], speed * DT / 1e9, num_rows=32)), t)
        if robot.wants_request(t):
            wire.append((t + latency_ms * MS, robot.make_request(observation_at(t, (q, -q))), q))
        commanded = float(robot.tick(state_at(t, (q, -q)), t).command.arm.q[0])
        assert commanded >= before - 1e-9
        q, before = q + (commanded - q) * TICK / (60 * MS), commanded
    assert commanded > 0.5 * speed * 5.0
