import numpy as np
import pytest
from msgspec import structs

from robot_runtime.core.plan.correction import CorrectionHead, correction_inputs
from robot_runtime.core.values.action import ActionSpec, GripperWidth, JointPosition
from robot_runtime.core.values.state import ArmState, GripperState, Observation, RobotState
from robot_runtime.errors import InvalidValueError

SPEC = ActionSpec(fields=(JointPosition(2), GripperWidth()), horizon=6, dt_ns=50_000_000)
STATE = RobotState(t_ns=0, q=np.array([1.0, 2.0]), dq=np.array([3.0, 4.0]), gripper_width=0.05)
OBSERVATION = Observation(state=STATE, environment_state=np.array([7.0]), task="x")
CHUNK = np.arange(18.0).reshape(6, 3)
NUM_INPUTS = 2 + 1 + 2 + 1 + 3 * 3 + 2


def make_head(seed: int = 0, *, width: int = 5) -> CorrectionHead:
    rng = np.random.default_rng(seed)
    sizes = (NUM_INPUTS, width, width, 3)
    arrays = {f"w{i}": rng.normal(size=sizes[i - 1 : i + 1]) for i in (1, 2, 3)}
    arrays |= {f"b{i}": rng.normal(size=sizes[i]) for i in (1, 2, 3)}
    arrays |= {"in_mean": np.zeros(NUM_INPUTS), "in_std": np.ones(NUM_INPUTS), "out_std": np.full(3, 0.1)}
    return CorrectionHead(action_spec=SPEC, lead=1, max_age=4, arrays=arrays)


def test_inputs_are_the_newest_observation_and_the_row_it_is_about() -> None:
    inputs = correction_inputs(OBSERVATION, CHUNK, 2.0, spec=SPEC, lead=1)
    seen = [1, 2, 0.05, 3, 4, 7]
    row = [9 - 1, 10 - 2, 11]  # joints counted from the measured ones, the gripper as it is
    angle = 2 * np.pi / 6
    np.testing.assert_allclose(inputs, [*seen, *row, -3, -3, -3, 6, 6, 6, np.sin(angle), np.cos(angle)])


def test_between_rows_the_chunk_is_interpolated() -> None:
    inputs = correction_inputs(OBSERVATION, CHUNK, 2.5, spec=SPEC, lead=1)
    np.testing.assert_allclose(inputs[6:9], [10.5 - 1, 11.5 - 2, 12.5])


def test_the_head_is_three_layers_with_silu() -> None:
    head, x = make_head(), np.random.default_rng(1).normal(size=NUM_INPUTS)
    a, h = head.arrays, x
    for i in (1, 2):
        z = h @ a[f"w{i}"] + a[f"b{i}"]
        h = z * (1 / (1 + np.exp(-z)))
    np.testing.assert_allclose(head.forward(x), 0.1 * (h @ a["w3"] + a["b3"]))


@pytest.mark.parametrize("k", [-1.0, 4.5, 5.0])
def test_rows_that_it_was_not_trained_on_are_left_alone(k: float) -> None:
    assert not make_head().correction(OBSERVATION, CHUNK, k).any()


def test_a_row_in_reach_is_corrected() -> None:
    assert make_head().correction(OBSERVATION, CHUNK, 4.0).shape == (3,)


def test_an_observation_of_another_size_or_not_finite_is_refused() -> None:
    for scene in (np.zeros(2), np.array([np.nan])):
        with pytest.raises(InvalidValueError, match="needs 17 finite inputs"):
            make_head().correction(structs.replace(OBSERVATION, environment_state=scene), CHUNK, 1.0)


def test_a_head_without_all_its_layers_is_refused() -> None:
    head = make_head()
    arrays = {name: value for name, value in head.arrays.items() if name != "b3"}
    with pytest.raises(InvalidValueError, match=r"missing: \['b3'\]"):
        CorrectionHead(action_spec=SPEC, lead=1, max_age=4, arrays=arrays)


def test_the_inputs_do_not_depend_on_the_order_in_which_a_robot_has_its_parts_nor_on_more_of_them():
    fields = (JointPosition(1, part="right"), GripperWidth("left_gripper"), JointPosition(1, part="left"))
    spec = ActionSpec(fields=fields, horizon=4, dt_ns=50_000_000)
    parts = {
        "left": ArmState(q=[1.0], dq=[10.0]),
        "right": ArmState(q=[2.0], dq=[20.0]),
        "head": ArmState(q=[3.0], dq=[30.0]),
        "left_gripper": GripperState(width=0.01),
        "right_gripper": GripperState(width=0.02),
    }
    for names in (list(parts), list(reversed(parts))):
        state = RobotState(t_ns=0, parts={name: parts[name] for name in names})
        x = correction_inputs(Observation(state=state), np.zeros((4, 3)), 0.0, spec=spec, lead=1)
        assert x[:5].tolist() == [2.0, 1.0, 0.01, 20.0, 10.0]
