"""A2C2's correction head on the robot (arXiv 2509.23224): corrects planned rows by the newest observation.

    t_obs             now = t_obs + k dt     + lead dt
    chunk seen from   newest observation     row k + lead:  base row + correction

A small network of three layers, in numpy: tens of microseconds, no torch. It is evaluated once per row, when
row k is due, for the row that comes `lead` rows later. More frequent evaluation would accumulate corrections,
as each counts from the arm's position.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
from msgspec import structs

from robot_runtime.core.method.request_parts import IntegratedDeltas
from robot_runtime.core.method.splice_parts import PerRowCorrection
from robot_runtime.core.plan.answers import Pending
from robot_runtime.core.plan.counts import Counts
from robot_runtime.core.plan.predict import StatePredictor, check_odometry
from robot_runtime.core.plan.timeline import ChunkTimeline, Knot
from robot_runtime.core.values.action import ActionSpec
from robot_runtime.core.values.command import Command, GripperCommand, JointCommand, PartCommand
from robot_runtime.core.values.fields import GripperWidth, JointPosition, Reference
from robot_runtime.core.values.shapes import Float
from robot_runtime.core.values.state import ArmState, GripperState, Observation, RobotState, readonly
from robot_runtime.errors import InvalidValueError

_ARRAYS = ("w1", "b1", "w2", "b2", "w3", "b3", "in_mean", "in_std", "out_std")
MAX_SIGMA = 5.0
_SENT_DONE = StatePredictor(model=IntegratedDeltas())


def correction_inputs(
    observation: Observation, chunk: Float[np.ndarray, "H D"], k: float, *, spec: ActionSpec, lead: int
) -> Float[np.ndarray, " I"]:
    """The head's inputs, I numbers, joint columns counted from the measured joints.

        q, gripper widths, dq, scene | row k + lead | row k minus it, last row minus it | sin, cos of pi k/H

    of the arms and grippers that the rows move, in their order, whatever other parts the robot has.
    k: rows from the chunk's observation to this one; may lie between rows, which are then interpolated.
    """
    state = observation.state
    origin = np.zeros(spec.dim)
    for f, columns in spec.columns():
        if isinstance(f, JointPosition) and f.reference is Reference.ABSOLUTE:
            origin[columns] = state.arm(f.part).q
    base, here = _row_at(chunk, k + lead), _row_at(chunk, k)
    parts = [state.parts[f.part] for f in spec.fields if f.part in state.parts]
    arms = [part for part in parts if isinstance(part, ArmState)]
    widths = [part.width for part in parts if isinstance(part, GripperState)]
    angle = np.pi * k / len(chunk)
    return np.concatenate(
        [
            *(arm.q for arm in arms),
            widths,
            *(arm.dq for arm in arms),
            observation.environment_state,
            base - origin,
            here - base,
            chunk[-1] - base,
            [np.sin(angle), np.cos(angle)],
        ]
    )


def _row_at(chunk: Float[np.ndarray, "H D"], position: float) -> Float[np.ndarray, " D"]:
    """The chunk interpolated at a position; before the first and after the last row, that row."""
    position = min(max(position, 0.0), len(chunk) - 1.0)
    below = min(int(position), len(chunk) - 2) if len(chunk) > 1 else 0
    above = min(below + 1, len(chunk) - 1)
    return chunk[below] + (position - below) * (chunk[above] - chunk[below])


@dataclass(frozen=True, kw_only=True, eq=False)
class CorrectionHead:
    """Weights (in, out) of the layers, and the normalization of inputs and outputs."""

    action_spec: ActionSpec
    lead: int
    """Rows from the newest observation to the row that is corrected."""
    max_age: int
    """Oldest chunk it was trained on [rows]."""
    arrays: Mapping[str, np.ndarray]
    """w1 b1 w2 b2 w3 b3 of the layers; in_mean, in_std (I,) and out_std (D,) [rad, m]."""

    def __post_init__(self) -> None:
        missing = [name for name in _ARRAYS if name not in self.arrays]
        if missing:
            raise InvalidValueError(f"a correction head needs {', '.join(_ARRAYS)}; missing: {missing}")
        arrays = {name: readonly(self.arrays[name]) for name in _ARRAYS}
        object.__setattr__(self, "arrays", arrays)
        if arrays["w3"].shape[1] != self.action_spec.dim:
            raise InvalidValueError(
                f"a correction has {self.action_spec.dim} columns, the head outputs {arrays['w3'].shape[1]}"
            )

    def correction(
        self, observation: Observation, chunk: Float[np.ndarray, "H D"], k: float
    ) -> Float[np.ndarray, " D"]:
        """The correction to add to row k + lead of the chunk, k rows after its observation; 0 beyond max_age.

        InvalidValueError: observation or chunk have another size than in training, or are not finite.
        """
        if not 0.0 <= k <= self.max_age or k + self.lead > len(chunk) - 1:
            return np.zeros(self.action_spec.dim)
        x = correction_inputs(observation, chunk, k, spec=self.action_spec, lead=self.lead)
        if x.shape != self.arrays["in_mean"].shape or not np.isfinite(x).all():
            raise InvalidValueError(
                f"the correction head needs {self.arrays['in_mean'].size} finite inputs, got {x.size}"
            )
        return self.forward(x)

    def forward(self, x: Float[np.ndarray, "*n I"]) -> Float[np.ndarray, "*n D"]:
        """Corrections of inputs as `correction_inputs` makes them."""
        a = self.arrays
        h = np.clip((x - a["in_mean"]) / a["in_std"], -MAX_SIGMA, MAX_SIGMA)
        for w, b in (("w1", "b1"), ("w2", "b2")):
            h = h @ a[w] + a[b]
            h = h / (1.0 + np.exp(-h))  # SiLU
        return (h @ a["w3"] + a["b3"]) * a["out_std"]


@runtime_checkable
class ResidualHead(Protocol):
    """Anything that corrects rows: `CorrectionHead`, or a formula."""

    @property
    def action_spec(self) -> ActionSpec:
        """The spec of the policy whose rows it corrects."""
        ...

    @property
    def lead(self) -> int:
        """Rows from the newest observation to the row that is corrected."""
        ...

    def correction(
        self, observation: Observation, chunk: Float[np.ndarray, "H D"], k: float
    ) -> Float[np.ndarray, " D"]:
        """The correction to add to row k + lead of a chunk, by an observation k rows after its row 0."""
        ...


class Corrector:
    """Corrects each row of the plan once, by the observation taken when the row before it is due.

        row k due, observation taken          row k + 1 due
               |                                   |
        ───────●───────────────────────────────────●───      the rows of the running chunk
          ╲____○___________________________________○         sent: straight to row k + 1 plus its correction

    A correction belongs to its row: the next row gets its own, counted from the chunk, so corrections do not
    add up, and a plan without further corrections is back at the policy's rows one row later. A splice
    brings other rows: the one due next is corrected at once, by an observation taken between two rows (k is
    then a fraction) and with less than a row of time to get there. After the last row nothing is corrected:
    the robot coasts to rest from its last command.

    Only whole chunks are corrected, as in training; one that streams in, once its last row is there. Where
    parts have a latency, the state is predicted as if every command sent had been carried out.
    """

    def __init__(
        self,
        part: PerRowCorrection,
        head: ResidualHead | None,
        *,
        action_spec: ActionSpec,
        timeline: ChunkTimeline,
        counts: Counts,
        lead_ns: int,
    ) -> None:
        """
        lead_ns: how far ahead of the clock rows are sent, see `PartLatency` [ns].
        InvalidValueError: there is no head, or one that does not fit.
        """
        if head is None:
            raise InvalidValueError(
                "the method corrects rows on the robot, which needs a correction head, and none is given: "
                "`robot-runtime train --recipe residual` makes one beside the policy"
            )
        _refuse_misfit(part, head, action_spec)
        self._head, self._bounds = head, _bounds(part, action_spec)
        self._spec, self._timeline, self._counts = action_spec, timeline, counts
        self._lead_ns = lead_ns
        self._chunks: dict[int, _Rows] = {}
        self._last: tuple[int, int] | None = None

    def check(self, state: RobotState) -> None:
        """InvalidValueError: the state has to be predicted, and lacks what that needs."""
        if self._lead_ns > 0:
            check_odometry(self._spec, state)

    def forget(self) -> None:
        """Forget all chunks: the robot was halted or reset."""
        self._chunks, self._last = {}, None

    def add(self, answer: Pending) -> None:
        """Keep the rows of an answer in the plan as the policy wrote them, once all have come."""
        if answer.num_rows == self._spec.horizon and answer.t0_ns is not None:
            rows = readonly(answer.rows)
            self._chunks[answer.request.request_id] = _Rows(rows=rows, t0_ns=answer.t0_ns)

    def is_due(self, settled_ns: int) -> bool:
        """Whether the row due next has not been corrected yet. settled_ns: the plan is fixed until then."""
        return self._next(settled_ns) is not None

    def correct(self, observation: Observation, settled_ns: int) -> None:
        """Correct the row due next, unless it has been.

        InvalidValueError: the observation has another size than the head was trained on.
        """
        due = self._next(settled_ns)
        if due is None:
            return
        if self._lead_ns > 0 and observation.state.is_finite:
            state = observation.state
            state = _SENT_DONE.predict(state, self._timeline, state.t_ns + self._lead_ns)
            observation = structs.replace(observation, state=state)
        knot, self._last = due
        chunk = self._chunks[self._last[0]]
        self._chunks = {i: rows for i, rows in self._chunks.items() if i >= self._last[0]}
        residual = self._residual(observation, chunk)
        if residual is None:
            self._counts.corrections_skipped += 1
            return
        bounded = np.clip(residual, -self._bounds, self._bounds)
        self._counts.corrected_rows += 1
        self._counts.corrections_clipped += bool((bounded != residual)[self._bounds > 0.0].any())
        if bounded.any():
            self._timeline.redirect(knot, _moved(knot.command, bounded, self._spec))

    def _next(self, settled_ns: int) -> tuple[Knot, tuple[int, int]] | None:
        """The row due next with its (request id, row), if it can still be corrected and has not been."""
        knot = self._timeline.next_knot(settled_ns)
        if knot is None or knot.source is None or knot.row is None:
            return None
        name = knot.source.request_id, knot.row
        return None if name == self._last or name[0] not in self._chunks else (knot, name)

    def _residual(self, observation: Observation, chunk: "_Rows") -> Float[np.ndarray, " D"] | None:
        """The head's correction; None if the observation or the correction is not finite."""
        if not (observation.state.is_finite and np.isfinite(observation.environment_state).all()):
            return None
        k = (observation.t_obs_ns - chunk.t0_ns) / self._spec.dt_ns
        # An observation a tick after row H - 2 was due is still about the last row.
        k = min(k, self._spec.horizon - 1.0 - self._head.lead)
        residual = self._head.correction(observation, chunk.rows, k)
        return residual if np.isfinite(residual).all() else None


@dataclass(frozen=True, kw_only=True, eq=False)
class _Rows:
    """A chunk as the policy wrote it."""

    rows: Float[np.ndarray, "H D"]
    t0_ns: int


def _refuse_misfit(part: PerRowCorrection, head: ResidualHead, spec: ActionSpec) -> None:
    if head.action_spec != spec:
        raise InvalidValueError(
            f"the correction head was trained for actions {head.action_spec}, the policy has {spec}"
        )
    if head.lead != 1:
        raise InvalidValueError(f"the robot corrects the row due next, lead 1; the head has lead {head.lead}")
    joints = [f for f in spec.fields if isinstance(f, JointPosition)]
    if not joints or any(f.reference is Reference.DELTA for f in joints):
        raise InvalidValueError(
            f"corrections are for absolute or relative joint positions, got {spec.fields}"
        )
    if part.max_joint <= 0.0 or part.max_gripper < 0.0:
        raise InvalidValueError(
            "corrections need max_joint > 0 and max_gripper >= 0, "
            f"got {part.max_joint} and {part.max_gripper}"
        )


def _bounds(part: PerRowCorrection, spec: ActionSpec) -> Float[np.ndarray, " D"]:
    """The largest correction of each column; 0 for those of a mobile base."""
    out = np.zeros(spec.dim)
    for f, columns in spec.columns():
        match f:
            case JointPosition():
                out[columns] = part.max_joint
            case GripperWidth():
                out[columns] = part.max_gripper
    return out


def _moved(command: Command, residual: Float[np.ndarray, " D"], spec: ActionSpec) -> Command:
    """A row's command with the correction added; relative joints move by the same amount as absolute ones."""
    moved: dict[str, PartCommand] = {}
    for f, columns in spec.columns():
        match f, command.parts.get(f.part):
            case JointPosition(), JointCommand(q=q):
                moved[f.part] = JointCommand(q=q + residual[columns])
            case GripperWidth(), GripperCommand(width=width):
                moved[f.part] = GripperCommand(width=width + float(residual[columns][0]))
    return command.with_parts(moved)
