"""`robot-runtime calibrate latency`: measures latencies from command to motion in a run's log."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import numpy as np
from tyro.conf import Positional

from calibration.commands.calibrate.result import keep
from robot_runtime.cli.options import InputFile, OutputFile, Several
from robot_runtime.commands.read_log import log_of
from robot_runtime.errors import InvalidValueError, UnknownNameError

if TYPE_CHECKING:
    from robot_runtime.core.values.command import PartCommand
    from robot_runtime.core.values.state import PartState
    from robot_runtime.log.reader import RunLog

LONGEST_S = 60.0
"""Length of the log to read [s]."""
_STEP_NS = 4_000_000
"""Time between two ticks that count [ns]."""
Series = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]
"""Times sent [s] and values (N, K), then times seen and values."""


@dataclass(frozen=True, kw_only=True)
class CalibrateLatency:
    """Measure the latency from command to motion of a robot's parts from a run's log.

    Moves nothing; `doctor --measure-latency` moves one joint by itself. In robot.toml, `latency_s =
    "latency.json"` of a part reads the result. Exit code 1: a latency cannot be trusted, and the reason is
    printed.

    Example: robot-runtime calibrate latency run.mcap --output latency.json
    """

    log: Annotated[InputFile, Positional]
    """The log of a run, a file that ends in .mcap."""
    output: OutputFile
    """File to write."""
    parts: Several[str] = ()
    """Parts to measure; all whose latency can be measured if not given."""

    def main(self) -> int:
        from calibration.latency import Latencies, Latency, latency_of

        found: dict[str, Latency] = {}
        with log_of(self.log, needs_whole=False) as log:
            series = series_of(log)
        for name in self.parts:
            if name not in series:
                raise UnknownNameError(f"part that is commanded in {self.log}", name, series)
        for name, (sent_s, sent, seen_s, seen) in series.items():
            if self.parts and name not in self.parts:
                continue
            try:
                latency = latency_of(sent_s, sent, seen_s, seen)
                if latency.problem and not self.parts:
                    print(f"{name}: {latency.problem}; left out")
                else:
                    found[name] = latency
            except InvalidValueError as error:
                if self.parts:
                    raise InvalidValueError(f"{name}: {error}") from error
                print(f"{name}: {error}; left out")
        if not found:
            raise InvalidValueError(f"{self.log}: no part followed its commands")
        rows = {
            name: f"{1e3 * each.delay_s:.1f} ms, {100 * each.gain:.0f} % of the motion, correlation "
            f"{each.correlation:.3f}, {min(each.peak_ratio, 99.0):.2f} times the next peak"
            for name, each in found.items()
        }
        code = keep(self.output, Latencies.of(found), rows)
        log.refuse_damage()
        return code


def series_of(log: "RunLog") -> Mapping[str, Series]:
    """Return the commands and the measured motion of each part: joints, widths, twists; never poses."""
    sent: dict[str, list[tuple[int, np.ndarray]]] = {}
    seen: dict[str, list[tuple[int, np.ndarray]]] = {}
    begin_ns = last_ns = -1
    for row in log.ticks():
        now_ns = row.tick.now_ns
        begin_ns = now_ns if begin_ns < 0 else begin_ns
        if now_ns - last_ns < _STEP_NS and last_ns >= 0:
            continue
        if now_ns - begin_ns > LONGEST_S * 1e9:
            break
        last_ns = now_ns
        for name, command in (row.tick.sent or row.tick.command).parts.items():
            state = row.state.parts.get(name)
            pair = _pair(command, state)
            if pair is None:
                continue
            sent.setdefault(name, []).append((now_ns, pair[0]))
            t_ns = getattr(state, "t_ns", None) or row.state.t_ns
            if name not in seen or t_ns > seen[name][-1][0]:
                seen.setdefault(name, []).append((t_ns, pair[1]))
    out = {}
    for name in sent:
        (a_ns, a), (b_ns, b) = (zip(*each[name], strict=True) for each in (sent, seen))
        if len(a) >= 50 and len(b) >= 50:
            a_s, b_s = ((np.array(t) - begin_ns) / 1e9 for t in (a_ns, b_ns))
            out[name] = a_s, np.array(a), b_s, np.array(b)
    return out


def _pair(command: "PartCommand", state: "PartState | None") -> tuple[np.ndarray, np.ndarray] | None:
    """Return the same quantity as sent and as measured; None: there is none."""
    from robot_runtime.core.values.command import BaseTwistCommand, GripperCommand, JointCommand
    from robot_runtime.core.values.state import ArmState, BaseState, GripperState

    match command, state:
        case JointCommand(q=q), ArmState():
            return q, state.q
        case GripperCommand(width=width), GripperState():
            return np.array([width]), np.array([state.width])
        case BaseTwistCommand(), BaseState() if state.V_WB_B is not None:
            return command.V_WB_B, state.V_WB_B
    return None
