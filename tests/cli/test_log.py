"""What `log info` says of a run."""

from dataclasses import replace

import pytest

from robot_runtime.commands.log import method_words
from robot_runtime.core.method.request_parts import FixedExecutionHorizon, PlainObservation
from robot_runtime.core.method.table import METHODS


@pytest.mark.parametrize("name", METHODS)
def test_a_method_of_the_table_is_said_by_its_name(name: str):
    assert method_words(repr(METHODS[name])) == name
    assert method_words(name) == name


def test_another_method_is_said_by_its_parts():
    mine = replace(
        METHODS["time-aligned"],
        request=PlainObservation(when=FixedExecutionHorizon(rows=7, rows_from_measured=7)),
    )
    assert method_words(repr(mine)) == "PlainObservation, ConstantSchedule, TimeAligned"
