"""What `robot_runtime.core` says of its arguments holds at every call that a test makes."""

import numpy as np
import pytest
from beartype.roar import BeartypeCallHintParamViolation, BeartypeCallHintReturnViolation
from jaxtyping import Float

from robot_runtime.core.method.latency import LatencyEstimator
from robot_runtime.core.values.action import GripperCommand, JointCommand
from robot_runtime.core.values.transforms import interpolate_planar, rotation_from_6d, turn_planar
from tests.checked import check_package, checked


def test_a_function_without_arrays_in_its_signature_takes_only_its_types():
    with pytest.raises(BeartypeCallHintParamViolation, match="angle"):
        turn_planar(np.zeros(2), "left")


def test_a_method_takes_only_its_types():
    with pytest.raises(BeartypeCallHintParamViolation):
        LatencyEstimator().add(0.1)


def test_an_array_has_the_shape_that_is_written():
    with pytest.raises(BeartypeCallHintParamViolation, match="columns"):
        rotation_from_6d(np.zeros((2, 5)))


def test_two_arrays_agree_in_the_dimensions_they_share():
    with pytest.raises(BeartypeCallHintParamViolation, match="x_1"):
        interpolate_planar(np.zeros((2, 3)), np.zeros((4, 3)), 0.5)


def test_a_result_agrees_with_the_arguments_and_a_call_within_a_call_has_dimensions_of_its_own():
    @checked
    def shortened(x: Float[np.ndarray, " n"], by: int) -> Float[np.ndarray, " n"]:
        return shortened(x[by:], 0) if by else x

    assert len(shortened(np.zeros(3), 0)) == 3
    with pytest.raises(BeartypeCallHintReturnViolation, match="is 2 which does not equal"):
        shortened(np.zeros(3), 1)


def test_the_fields_of_a_dataclass_are_what_they_are_declared_to_be():
    with pytest.raises(BeartypeCallHintParamViolation, match="parameter q="):
        JointCommand(q=np.zeros((2, 2)))
    with pytest.raises(BeartypeCallHintParamViolation, match="width"):
        GripperCommand(width="open")


def test_a_package_that_is_imported_already_cannot_be_checked_any_more():
    with pytest.raises(RuntimeError, match=r"robot_runtime\.core"):
        check_package("robot_runtime.core")
