"""Samples a run's control ticks on the grid of a dataset: `Sampler`.

    ticks     |   |   |   |   |   |   |   |   |      at the robot's rate, late now and then
    frames  k               k+1              k+2     at start + k / fps: each shows the newest tick by then

State and action of a frame are those of one tick, so they belong together and contain nothing that the robot
had not measured by then. Between two ticks nothing is interpolated: at 500 Hz a tick is at most 2 ms older
than its frame, a contact or a gripper's step is not a line between two numbers, and a running policy has no
later tick either.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from robot_runtime.core.authority import Authority, HandoverPhase
from robot_runtime.core.safety import Cause, Mode
from robot_runtime.core.tick import Tick
from robot_runtime.core.values.action import NS_PER_S
from robot_runtime.core.values.command import Command
from robot_runtime.core.values.state import RobotState
from robot_runtime.dataset import run_columns as run

_DRIVES = (Authority.POLICY, Authority.HUMAN, Authority.SCRIPTED)
_IMITABLE = (HandoverPhase.NONE, HandoverPhase.RECOVER, HandoverPhase.CORRECT)
_OF_A_POLICY = (HandoverPhase.REQUEST, HandoverPhase.ADAPT, HandoverPhase.RELEASE)
"""Phases in which a policy has failed or is about to resume: without a policy, a person just drives."""


@dataclass(frozen=True, eq=False)
class Step:
    """One control tick of the log."""

    number: int
    """Number from the start of the run."""
    state: RobotState
    tick: Tick


@dataclass(frozen=True, kw_only=True, eq=False)
class Frames:
    """The numbers of an episode's frames."""

    start_ns: int
    """Time of frame 0 [ns]."""
    columns: Mapping[str, np.ndarray]
    """Each (frames, numbers), or texts (frames,)."""
    num_late: int
    """Frames whose tick is older than a period and a half."""

    @property
    def num(self) -> int:
        return len(self.columns[run.TIME])


def grid_ns(start_ns: int, end_ns: int, fps: int) -> list[int]:
    """Times of frames: start + k / fps, before the end [ns]."""
    num = max(0, -((start_ns - end_ns) * fps // NS_PER_S))
    return [start_ns + round(k * NS_PER_S / fps) for k in range(num)]


def newest_at(times_ns: Sequence[int], steps: Iterator[Step]) -> Iterator[Step]:
    """For each time the newest tick at or before it, or the first one. Ticks are in order; ends with the last
    time."""
    held = next(steps, None)
    if held is None:
        return
    ahead = next(steps, None)
    for t_ns in times_ns:
        while ahead is not None and ahead.tick.now_ns <= t_ns:
            held, ahead = ahead, next(steps, None)
        yield held


@dataclass(frozen=True, kw_only=True, eq=False)
class Sampler:
    """Makes frames from ticks; its fields hold for a whole run."""

    fps: int
    parts: Sequence[str]
    """Parts that the policy commands."""
    action_names: Sequence[str]
    measured: Callable[[RobotState], Mapping[str, np.ndarray]]
    """Computes the columns of a state."""
    commanded: Callable[[Command], Mapping[str, float]]
    """Computes the numbers of a command by name."""
    policy: str
    """Name of the policy."""
    has_policy: bool = True
    """False: a person drives alone. A stationary robot then counts as driven by the person."""
    offset_ns: int
    """Offset from the robot's clock to calendar time."""
    delay_rows: Mapping[int, int] = field(default_factory=dict)
    """Request -> how many rows late its answer came."""

    def frames(self, times_ns: Sequence[int], steps: Sequence[Step]) -> Frames:
        """times_ns: of the frames. steps: the tick that each shows."""
        rows: dict[str, list[Any]] = {}
        action = dict.fromkeys(self.action_names, 0.0)
        for t_ns, step in zip(times_ns, steps, strict=True):
            action |= self.commanded(step.tick.sent or step.tick.command)
            for name, value in self._row(t_ns, step, action).items():
                rows.setdefault(name, []).append(value)
        columns = {name: np.array(values) for name, values in rows.items()}
        for name, values in columns.items():
            if name.startswith("observation."):
                columns[name] = _last_finite(values)
        self._mark(columns, times_ns, steps)
        late = sum(
            t_ns - step.tick.now_ns > 1.5 * NS_PER_S / self.fps
            for t_ns, step in zip(times_ns, steps, strict=True)
        )
        return Frames(start_ns=times_ns[0], columns=columns, num_late=late)

    def _row(self, t_ns: int, step: Step, action: Mapping[str, float]) -> dict[str, Any]:
        tick, source = step.tick, step.tick.source
        who, phases = self._authority(tick), self._phases(tick)
        sent = np.array([action[name] for name in self.action_names])
        wanted = {} if tick.policy_command is None else dict(self.commanded(tick.policy_command))
        has_plan = all(name in wanted for name in self.action_names)
        within = {**action, **self.commanded(tick.command)}
        own = [run.part_of(name, self.parts) for name in self.action_names]
        is_policys = [i < 0 or who[i] is Authority.POLICY for i in own]
        is_human = any(each is Authority.HUMAN for each in who)
        return {
            **self.measured(step.state),
            "capture.time_ns.state": [step.state.t_ns],
            "action": sent,
            run.TIME: [t_ns],
            run.WALL: [t_ns + self.offset_ns],
            run.TICK: [step.number],
            run.POLICY_ACTION: [wanted.get(name, 0.0) for name in self.action_names],
            run.POLICY_VALID: [has_plan],
            run.IS_INTERVENTION: [float(is_human)],
            run.EVO_STATE: [_evo_state(phases, is_human)],
            run.COLLECTOR: "human" if is_human else self.policy,
            run.PRE_SAFETY: [
                wanted.get(name, within[name]) if policys else within[name]
                for name, policys in zip(self.action_names, is_policys, strict=True)
            ],
            run.CLAMPED: [part in tick.clip.parts for part in self.parts],
            run.AUTHORITY: [run.AUTHORITIES.index(each.value) for each in who],
            run.PHASE: [run.PHASES.index(each.value) for each in phases],
            run.AUTHORITY_MASK: [i >= 0 and who[i] is Authority.HUMAN for i in own],
            run.TRAINABLE: [step.state.is_finite and self._is_imitable(tick, who, phases)],
            run.CHUNK: [-1 if source is None else source.request_id],
            run.CHUNK_ROW: [-1 if tick.row is None else tick.row],
            run.CHUNK_OBS: [-1 if source is None else source.t_obs_ns],
            run.CHUNK_DELAY: [-1 if source is None else self.delay_rows.get(source.request_id, -1)],
            run.MODE: tick.mode.value,
            run.CAUSE: tick.cause.value,
        }

    def _is_imitable(self, tick: Tick, who: Sequence[Authority], phases: Sequence[HandoverPhase]) -> bool:
        drives: Sequence[Authority] = _DRIVES
        imitable: Sequence[HandoverPhase] = _IMITABLE
        if not self.has_policy:
            if tick.cause is Cause.NOT_ARMED:
                return False
            drives, imitable = (*drives, Authority.HOLD), (*imitable, *_OF_A_POLICY)
        return all(each in drives for each in who) and all(each in imitable for each in phases)

    def _authority(self, tick: Tick) -> list[Authority]:
        """Authority of each part; from the mode where the run does not record it."""
        by_mode = {Mode.RUN: Authority.POLICY, Mode.HOLD: Authority.HOLD, Mode.STOP: Authority.SAFETY}
        return [tick.authority.get(part, by_mode[tick.mode]) for part in self.parts]

    def _phases(self, tick: Tick) -> list[HandoverPhase]:
        return [tick.phase_of.get(part, HandoverPhase.NONE) for part in self.parts]

    def _mark(self, columns: dict[str, np.ndarray], times_ns: Sequence[int], steps: Sequence[Step]) -> None:
        """Set the columns that depend on several frames: spans, their ends, and gaps."""
        who, is_human = columns[run.AUTHORITY], columns[run.IS_INTERVENTION].ravel() > 0
        changes = np.concatenate([[False], (np.diff(who, axis=0) != 0).any(axis=1)])
        before = np.concatenate([[False], is_human[:-1]])
        begins, ends = is_human & ~before, ~is_human & before
        columns[run.SEGMENT] = np.cumsum(changes)[:, None]
        columns[run.INTERVENTION] = np.where(is_human, np.cumsum(begins) - 1, -1)[:, None]
        columns[run.BOUNDARY] = (begins.astype(int) - ends.astype(int))[:, None]
        ticks = np.array([step.tick.now_ns for step in steps])
        period_ns = NS_PER_S / self.fps
        dt = np.append(np.diff(ticks), 0)
        is_late = np.array(times_ns) - ticks > 1.5 * period_ns
        follows = (dt > 0) & (dt <= 1.5 * period_ns) & ~is_late & ~np.append(is_late[1:], True)
        columns[run.DT], columns[run.NEXT_VALID] = dt[:, None], follows[:, None]


def _evo_state(phases: Sequence[HandoverPhase], is_human: bool) -> float:
    if is_human or any(each not in (HandoverPhase.NONE, HandoverPhase.RELEASE) for each in phases):
        return 1.0
    return 2.0 if HandoverPhase.RELEASE in phases else 0.0


def _last_finite(values: np.ndarray) -> np.ndarray:
    """Replace non-finite numbers by those before them, 0 at the start: otherwise statistics would be
    non-finite. Their frames are not trainable."""
    bad = ~np.isfinite(values.astype(float))
    if not bad.any():
        return values
    held = np.where(bad, 0, np.arange(len(values))[:, None])
    newest = np.maximum.accumulate(held, axis=0)
    return np.nan_to_num(np.take_along_axis(values, newest, axis=0))
