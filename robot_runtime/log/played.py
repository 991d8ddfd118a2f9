"""A recorded episode as a policy, true to time: `PlayedPolicy` moves a robot along it again.

    log         ●──●──●──●──●──●──●     commands sent to the drivers, at their times in the episode
    request          t                  "this much of it has been played"
    answer           ●──●──●──●──●      row k: the command at t + k dt

It runs as any policy does: through the executor, its limits and everything that can stop a robot. A base that
was commanded in poses follows the same path from its current pose.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from robot_runtime.core.orders import EpisodeMark
from robot_runtime.core.plan.whole_body import WholeBody
from robot_runtime.core.policy import ChunkRequest
from robot_runtime.core.policy_info import PolicyInfo
from robot_runtime.core.values.action import NS_PER_S, ActionSpec
from robot_runtime.core.values.command import (
    BasePoseCommand,
    BaseTwistCommand,
    Command,
    GripperCommand,
    JointCommand,
    PartCommand,
    PoseCommand,
)
from robot_runtime.core.values.fields import (
    ActionField,
    BasePose,
    BaseTwist,
    EndEffectorPose,
    GripperWidth,
    JointPosition,
)
from robot_runtime.core.values.schema import ArmSchema, Schema
from robot_runtime.core.values.shapes import Float
from robot_runtime.core.values.state import RobotState
from robot_runtime.core.values.transforms import compose_planar, inverse_planar, rotation_to_6d
from robot_runtime.errors import InvalidValueError
from robot_runtime.log.reader import RunLog

AHEAD_NS = NS_PER_S // 2
"""Time span of an answer [ns]; the next one arrives meanwhile."""
MAX_ROWS = 500


@dataclass(frozen=True, kw_only=True, eq=False)
class RecordedWay:
    """The commands sent to a robot's drivers in one episode."""

    schema: Schema
    """The schema that a robot needs for it."""
    times_s: Float[np.ndarray, " T"]
    """Times since the start of the episode [s]."""
    period_ns: int
    """Control period, as in the recorded run [ns]: one row for each tick, since the limiter alters
    commands at the limits when rows are further apart."""
    columns: Mapping[ActionField, Float[np.ndarray, "T K"]]
    """Columns of each part; bases relative to where they started."""
    start: Mapping[str, Float[np.ndarray, " N"]]
    """Joints at the start, by part [rad]."""
    measured: Sequence[RobotState]
    """What the robot measured at these times."""

    @classmethod
    def of(cls, log: RunLog, episode: int = 0) -> "RecordedWay":
        """InvalidValueError: the log has no such episode, or a part's commands cannot be played."""
        mark = _mark(log, episode)
        steps = [
            (row.tick, row.state) for row in log.ticks() if mark.start_ns <= row.tick.now_ns < mark.end_ns
        ]
        if log.has_hole(mark.start_ns, mark.end_ns):
            raise InvalidValueError(
                f"episode {episode} cannot be played, something is missing in it: {log.damage}"
            )
        if not steps:
            raise InvalidValueError(f"{log.path}: nothing was commanded in episode {episode}")
        commands = [tick.sent or tick.command for tick, _ in steps]
        times_ns = np.array([tick.now_ns for tick, _ in steps])
        parts = [part for part in commands[0].parts if all(part in each.parts for each in commands)]
        whole = log.configuration.whole_body
        given = whole if isinstance(whole, Mapping) else {}  # an executor's configuration has them by arm
        bodies = {part: body for part, body in given.items() if isinstance(body, WholeBody)}
        columns = dict(_column(part, commands, bodies.get(part)) for part in parts)
        if not columns:
            raise InvalidValueError(f"{log.path}: no part was commanded all through episode {episode}")
        return cls(
            schema=_schema(columns, log.info.schema),
            times_s=(times_ns - times_ns[0]) / NS_PER_S,
            period_ns=log.info.control_period_ns,
            columns=columns,
            start={
                part: command.q
                for part, command in commands[0].parts.items()
                if isinstance(command, JointCommand)
            },
            measured=tuple(state for _, state in steps),
        )

    @property
    def duration_s(self) -> float:
        return float(self.times_s[-1])

    def rows(self, t_s: Float[np.ndarray, " n"], base: Mapping[str, np.ndarray]) -> Float[np.ndarray, "n D"]:
        """The commands at these times, in the order of the fields; the first and last hold beyond the ends.

        base: poses of the bases when this one started.
        """
        before = np.clip(np.searchsorted(self.times_s, t_s, side="right") - 1, 0, len(self.times_s) - 1)
        out = []
        for f, column in self.columns.items():
            match f:
                case JointPosition():
                    out.append(np.stack([np.interp(t_s, self.times_s, each) for each in column.T], axis=1))
                case BaseTwist():
                    out.append(np.where((t_s > self.duration_s)[:, None], 0.0, column[before]))
                case BasePose(part=part):
                    out.append(np.array([compose_planar(base[part], x) for x in column[before]]))
                case _:
                    out.append(column[before])
        return np.concatenate(out, axis=1)


class PlayedPolicy:
    """Moves a robot along a recorded trajectory; its clock is that of the observations."""

    def __init__(self, way: RecordedWay, *, may_begin: Callable[[], bool] = lambda: True) -> None:
        """may_begin: until it returns true, every answer is the start of the trajectory."""
        self._way, self._may_begin = way, may_begin
        self.began_ns: int | None = None
        """When the trajectory started, by the robot's clock [ns]; None: not yet."""
        self._base: dict[str, np.ndarray] = {}
        self._num_rows = min(max(AHEAD_NS // way.period_ns, 8), MAX_ROWS)
        spec = ActionSpec(fields=tuple(way.columns), horizon=self._num_rows, dt_ns=way.period_ns)
        self.info = PolicyInfo(name="recorded", action_spec=spec, schema=way.schema)

    def infer(self, request: ChunkRequest) -> Iterator[Float[np.ndarray, "n D"]]:
        """ValueError: the trajectory is relative to a base whose pose the robot does not measure."""
        state = request.observation.state
        if self.began_ns is None:
            self._base = {
                f.part: _base_of(state, f.part) for f in self._way.columns if isinstance(f, BasePose)
            }
            if self._may_begin():
                self.began_ns = state.t_ns
        began_ns = state.t_ns if self.began_ns is None else self.began_ns
        ahead_ns = np.arange(self._num_rows) * (0 if self.began_ns is None else self._way.period_ns)
        yield self._way.rows((state.t_ns - began_ns + ahead_ns) / NS_PER_S, self._base)


def _schema(columns: Collection[ActionField], of: Schema) -> Schema:
    """The schema a robot needs: the parts that move, and end effectors where commands are poses."""
    parts = {f.part: of.parts[f.part] for f in columns if f.part in of.parts}
    for f in columns:
        arm = parts.get(f.part)
        if isinstance(f, JointPosition) and isinstance(arm, ArmSchema):
            parts[f.part] = replace(arm, has_hand=False)
    return Schema(action_fields=tuple(columns), parts=parts)


def _mark(log: RunLog, episode: int) -> EpisodeMark:
    marks = log.episodes()
    if not 0 <= episode < len(marks):
        last = len(marks) - 1
        raise InvalidValueError(
            f"{log.path} has episodes 0 to {last}, got {episode}"
            if marks
            else f"nothing happened in {log.path}"
        )
    return marks[episode]


def _column(
    part: str, sent: Sequence[Command], body: WholeBody | None
) -> tuple[ActionField, Float[np.ndarray, "T K"]]:
    """body: of an arm that is commanded in end-effector poses, and resolves them itself."""
    commands = [command.parts[part] for command in sent]
    kinds = {type(command) for command in commands}
    if len(kinds) > 1:
        names = " and ".join(sorted(kind.__name__ for kind in kinds))
        raise InvalidValueError(f"{part} was commanded by {names} in one episode, which cannot be played")
    rows = np.array([_numbers(part, command) for command in commands], dtype=float)
    match commands[0]:
        case JointCommand() if body is not None:
            hands = [body.kinematics.forward(q) for q in rows]
            poses = [np.concatenate([X_BE.translation, rotation_to_6d(X_BE.rotation)]) for X_BE in hands]
            return EndEffectorPose(part=part), np.array(poses)
        case JointCommand():
            return JointPosition(rows.shape[1], part=part), rows
        case GripperCommand():
            return GripperWidth(part), rows
        case BaseTwistCommand():
            return BaseTwist(part), rows
        case BasePoseCommand():
            away = inverse_planar(rows[0])
            return BasePose(part=part), np.array([compose_planar(away, x) for x in rows])
    return EndEffectorPose(part=part), rows


def _numbers(part: str, command: PartCommand) -> np.ndarray:
    match command:
        case JointCommand(q=values) | BaseTwistCommand(V_WB_B=values) | BasePoseCommand(x_WB=values):
            return values
        case GripperCommand(width=width):
            return np.array([width])
        case PoseCommand(p_BE=p_BE):
            return np.concatenate([p_BE, rotation_to_6d(command.X_BE.rotation)])
    raise InvalidValueError(f"{part} was commanded by {type(command).__name__}, which cannot be played")


def _base_of(state: RobotState, part: str) -> np.ndarray:
    x_WB = state.base(part).x_WB
    if x_WB is None:
        raise ValueError(f"the path of {part} is relative to its pose, which the robot does not measure")
    return x_WB
