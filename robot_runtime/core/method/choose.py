"""Chooses the method for a policy: by latency (`--method auto`), or by its training alone (`default`).

d rows pass until an answer comes. With one open request at a time the next one goes out s >= d rows after it,
and its answer comes d rows later still:

    row of the chunk   0  ...  d-1 | d  ...  s-1 | s  ...  s+d-1 | s+d ... H-1
                       past when   | runs alone  | runs until    | spare: the plan ends
                       it comes                    the next one    when row H-1 is due

which needs d <= s <= H - 1 - d. Where that has no solution the robot would run out of plan repeatedly.
"""

from dataclasses import dataclass, replace

from robot_runtime.core.method import AUTO, DEFAULT
from robot_runtime.core.method.capabilities import Capabilities, resolve_method
from robot_runtime.core.method.latency import rows_past
from robot_runtime.core.method.request_parts import RolledForwardState
from robot_runtime.core.method.splice_parts import TemporalEnsembling
from robot_runtime.core.method.table import METHODS, Method, method_named
from robot_runtime.core.values.action import NS_PER_MS, NS_PER_S
from robot_runtime.errors import InvalidValueError

TRAINED = (
    ("pipelined-faster", "it was trained for the horizon-aware schedule, whose first rows come early"),
    ("pipelined-prefix", "it was trained to continue the rows that will have run by then"),
    ("vlash", "it was trained on states rolled forward to where its answer starts"),
)
"""Methods that a policy has to be trained for, the best first, and the reason to choose them.

remac and xiaomi are not among them: their own policies do better with pipelined-rtc (400 ms, 50 episodes of
pick_place, conveyor and strike each: 45, 48, 22 against remac's 38, 25, 16, and 35, 32, 25 against xiaomi's
27, 28, 14). vlash's has 50, 24, 12 with it and 41, 24, 25 with pipelined-rtc, at four times the requests.
"""
DEFAULTS = (
    ("pipelined-faster", "was trained for the horizon-aware schedule"),
    ("pipelined-prefix", "was trained to continue committed rows"),
    ("cross-fade", "knows one schedule and no committed rows"),
)
"""The default methods: the first that the policy takes is run; with what the policy was then trained for.

An arm lags its plan, and rows that continue from its measured position begin behind its last command.
Time-aligned, they make it backtrack at every splice (60 ms of lag at 0.5 rad/s: 7 mrad, 7 times a second);
cross-faded, they do not.
"""
CUT = ("pipelined-faster", "pipelined-prefix")
"""Methods that do well with d cut to what training covers."""


@dataclass(frozen=True, kw_only=True)
class Auto:
    """Placeholder for the method that `choose_method` picks."""

    execution_horizon: int | None = None
    """Rows to run before asking again, s; None means the method's own."""


@dataclass(frozen=True, kw_only=True)
class Default:
    """Placeholder for the method that the policy was trained for, see `default_for`."""

    execution_horizon: int | None = None
    """As in `Auto`."""


@dataclass(frozen=True, kw_only=True)
class Choice:
    """A method and why it was chosen."""

    name: str
    method: Method
    reason: str
    """One line for the operator."""

    def __str__(self) -> str:
        return f"method {self.name}: {self.reason}"


def method_or_choice(name: str, *, execution_horizon: int | None = None) -> Method | Auto | Default:
    """As `method_named`, `Auto` for "auto" and `Default` for "default"."""
    if name == AUTO:
        return Auto(execution_horizon=execution_horizon)
    if name == DEFAULT:
        return Default(execution_horizon=execution_horizon)
    return method_named(name, execution_horizon=execution_horizon)


def default_for(default: Default, capabilities: Capabilities) -> Choice:
    """The first of DEFAULTS that the policy was trained for, with the policy's execution horizon unless the
    user gives one; InvalidValueError if the policy takes none of them."""
    found = _default_of(capabilities)
    m = capabilities.temporal_ensemble
    if m is not None and "temporal-ensembling" in capabilities.methods():
        method = method_named("temporal-ensembling", execution_horizon=default.execution_horizon)
        return Choice(
            name="temporal-ensembling",
            method=replace(method, blend=TemporalEnsembling(m=m)),
            reason=f"the default of a policy that was made to be averaged over its chunks, m = {m:g}",
        )
    if found is not None:
        name, why = found
        rows, asked = _rows_to_ask(name, default.execution_horizon, capabilities)
        method = method_named(name, execution_horizon=rows)
        return Choice(name=name, method=method, reason=f"the default of a policy that {why}{asked}")
    raise InvalidValueError(
        f"the policy takes none of the default methods {', '.join(name for name, _ in DEFAULTS)}; "
        f"it supports {', '.join(capabilities.methods()) or 'none'}"
    )


def choose_method(
    capabilities: Capabilities,
    *,
    latency_ns: int,
    dt_ns: int,
    horizon: int,
    execution_horizon: int | None = None,
) -> Choice:
    """The method for a policy whose answers take `latency_ns` from capture to the first row [ns].

    horizon: H, rows of a chunk, `dt_ns` apart.
    execution_horizon: s; None takes the policy's, if the choice is its default, or the method's own.
    InvalidValueError: no sampler is declared, or a number is out of range.
    """
    if not capabilities.samplers or latency_ns < 0 or dt_ns <= 0 or horizon < 1:
        raise InvalidValueError(
            "choosing a method needs a policy with a sampler, latency >= 0, dt > 0 and H >= 1, got "
            f"{len(capabilities.samplers)} samplers, {latency_ns} ns, {dt_ns} ns and {horizon}"
        )
    d = rows_past(latency_ns, dt_ns)
    supported = capabilities.methods()
    late = f"answers take {latency_ns / NS_PER_MS:.0f} ms, d = {d} rows of {dt_ns / NS_PER_S:g} s"
    name, why = _pick(capabilities, supported, late, d=d, horizon=horizon, is_quick=latency_ns < dt_ns)
    method = METHODS[name]
    if not isinstance(method.sampler, capabilities.samplers):
        # The robot is stationary and nothing is committed: any sampler then needs the observation alone.
        method = replace(method, sampler=capabilities.samplers[0]())
    rows, asked = _rows_to_ask(name, execution_horizon, capabilities)
    if rows is not None:
        method = replace(method, request=method_named(name, execution_horizon=rows).request)
    return Choice(
        name=name, method=resolve_method(method, capabilities, policy="chosen for"), reason=why + asked
    )


def _pick(
    can: Capabilities, supported: tuple[str, ...], late: str, *, d: int, horizon: int, is_quick: bool
) -> tuple[str, str]:
    if is_quick and "cross-fade" in supported and 2 * d < horizon:
        return "cross-fade", f"{late}: less than one row, so nothing is gained by more than dropping it"
    beyond = ""
    for name, why in TRAINED:
        if name not in supported:
            continue
        if name in CUT and 0 < can.max_inference_delay < d and 2 * d < horizon:
            # At 700 ms on pick_place and track 89 and 100 % succeed so, 74 and 92 % with cross-fade.
            return name, f"{late}, cut to the {can.max_inference_delay} rows its training covers; {why}"
        if d > can.max_inference_delay:
            beyond = f"more than the {can.max_inference_delay} rows its training covers; "
        elif (isinstance(METHODS[name].request, RolledForwardState) and d < horizon) or 2 * d < horizon:
            return name, f"{late}, and {why} (up to {can.max_inference_delay} rows)"
    if 2 * d >= horizon:
        return "synchronous", (
            f"{late}; {beyond}d <= s <= H - 1 - d has no solution with chunks of H = {horizon} rows, so the "
            f"robot would run out of plan: it stops, observes and waits instead"
        )
    if "pipelined-rtc" in supported:
        return "pipelined-rtc", (
            f"{late}; {beyond}guidance draws every new chunk to the plan without training, and works better "
            f"the more often it is asked"
        )
    if "cross-fade" in supported:
        return "cross-fade", (
            f"{late}; {beyond}the policy knows one schedule only: rows already past are dropped, and the "
            f"robot fades from the old plan into the new one"
        )
    return (
        "synchronous",
        f"{late}; {beyond}no asynchronous method fits this policy: it stops, observes and waits",
    )


def _default_of(can: Capabilities) -> tuple[str, str] | None:
    """The first entry of DEFAULTS that the policy takes."""
    return next((row for row in DEFAULTS if row[0] in can.methods()), None)


def _rows_to_ask(name: str, wanted: int | None, can: Capabilities) -> tuple[int | None, str]:
    """Rows from one request to the next, None: the method's own; and a note if the policy declares them.

    A policy's execution horizon applies to its default method alone.
    """
    found = _default_of(can)
    if wanted is not None or can.execution_horizon is None or found is None or name != found[0]:
        return wanted, ""
    return can.execution_horizon, f" and is best asked every {can.execution_horizon} rows"
