"""Converts an expert's recorded steps in an env to demonstrations: each step with the actions from it on."""

import numpy as np

from policies.flow.demonstrations import StoredDemonstration
from robot_runtime.core.values.action import ActionSpec, at_rest_or
from robot_runtime.core.values.state import Observation, RobotState
from robot_runtime.errors import InvalidValueError
from robot_runtime.evaluation.steps import RecordedSteps, measured_in


def spec_of(steps: RecordedSteps, *, horizon: int) -> ActionSpec:
    """The action spec of recorded steps: each row is sent when it is due and lasts one control period."""
    return ActionSpec(fields=(steps.numbers,), horizon=horizon, dt_ns=steps.control_period_ns)


def demonstrations_of(steps: RecordedSteps, spec: ActionSpec) -> list[StoredDemonstration]:
    """One demonstration for every step: its observation and the H actions from it on.

    Past the end of its episode the last action is repeated, or the action that keeps the robot stationary.
    InvalidValueError: the spec has other columns or another time step.
    """
    if spec.names != steps.numbers.column_names or spec.dt_ns != steps.control_period_ns:
        raise InvalidValueError(
            f"steps of {steps.control_period_ns} ns with {', '.join(steps.numbers.column_names)} cannot be "
            f"rows of {spec.dt_ns} ns with {', '.join(spec.names)}"
        )
    measured, out = measured_in(steps), []
    bounds = np.flatnonzero(np.diff(steps.episode)) + 1
    for first, end in zip([0, *bounds], [*bounds, len(steps.episode)], strict=True):
        last = at_rest_or(steps.actions[end - 1], steps.numbers.at_rest)
        actions = np.concatenate([steps.actions[first:end], np.repeat(last[None], spec.horizon, axis=0)])
        for i in range(end - first):
            state = RobotState(
                t_ns=i * spec.dt_ns, measured={part: x[first + i] for part, x in measured.items()}
            )
            seen = Observation(state=state, environment_state=steps.state[first + i], task=steps.task)
            out.append(
                StoredDemonstration(observation=seen, rows=actions[i : i + spec.horizon], num_committed=0)
            )
    return out
