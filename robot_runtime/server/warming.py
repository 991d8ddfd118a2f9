"""First calls of a policy made in advance so that no robot pays for them: `Warming` chooses them without I/O;
`warm_up` and `call_on_nothing` make them.

    piece         one call of the policy on nothing: a sampler part, a size of batch, a shape
    open          the usual sampler part is warm for one robot: the server opens
    then          a piece at a time between requests, smallest first

    worker   |usual x 1|: open |batch| other x 1 |batch| batch | usual x 2 |  ...  | usual x 4 |
    robots                      asks              asks   asks

A piece that takes no longer than one request of every connected robot goes between any two batches: a request
waits for at most one of them. A longer one, in which torch compiles, waits until no robot has been connected
for QUIET_NS, or none that is connected has asked for IDLE_NS: a running robot is not stopped for what others
may ask later.

A policy with fixed shapes (`core.policy.num_shapes`) only runs what is warm: its batches have warm sizes, and
a request for a cold sampler part is held, which makes that part the next. For any other policy a first call
costs little: all sampler parts are served at once, and larger batches are made once their duration is known.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import numpy as np
import pinocchio as pin

from robot_runtime.clock import Clock
from robot_runtime.core.method.choose import Default, default_for
from robot_runtime.core.method.sampler_parts import PREFIXLESS, RtcGuidance, SamplerPart, num_samples
from robot_runtime.core.method.schedule import answer_rows
from robot_runtime.core.policy import (
    ChunkRequest,
    Policy,
    answers_batches,
    num_evaluations,
    num_shapes,
)
from robot_runtime.core.policy_info import PolicyInfo
from robot_runtime.core.values.action import NS_PER_MS, NS_PER_S
from robot_runtime.core.values.schema import ArmSchema, BaseSchema, GripperSchema, Schema
from robot_runtime.core.values.state import (
    ArmState,
    BaseState,
    GripperState,
    Image,
    Observation,
    PartState,
    RobotState,
)
from robot_runtime.errors import InvalidValueError, NotShownError, PolicyError
from robot_runtime.server.batcher import BatchTimes, batch_sizes, work
from robot_runtime.wire.arrays import is_finite

NUM_CALLS = 3
"""For a policy with shapes, or one robot: torch compiles in the first call, and records graphs in the
next."""
NUM_MORE_CALLS = 2
"""For any other policy and more robots."""
LONG_NS = NS_PER_S // 2
"""Batches are no larger than the first size that takes longer."""
OPEN_NS = 3 * NS_PER_S
"""A server that could open warms up this much longer, which is all of it for most policies."""
PATIENCE_NS = 20 * NS_PER_MS
"""A piece that takes no longer may delay a request, whatever the policy takes by itself."""
QUIET_NS, IDLE_NS = 2 * NS_PER_S, 10 * NS_PER_S
"""After no robot has connected, or no connected one has asked, for this long (counted from when it
connected), pieces may take long."""


@dataclass(frozen=True, kw_only=True)
class Piece:
    """What one warm-up call is for."""

    kind: type[SamplerPart]
    size: int = 1
    """Size of its batch."""
    shape: int = 0
    """Index of the policy's shape."""


@dataclass(frozen=True, kw_only=True)
class Called:
    """The result of calling a piece."""

    piece: Piece
    took_ns: int = 0
    num_evaluations: int = 0
    """Passes of one chunk through the network, if the policy counts them."""
    error: Exception | None = None


class Warming:
    """Warms one policy; owned by one thread: the worker's until the server opens, then the network's."""

    def __init__(self, info: PolicyInfo, *, max_batch: int, num_shapes: int = 0) -> None:
        """
        max_batch: maximum number of robots answered together, once all is warm.
        num_shapes: number of the policy's shapes; 0: it has none.
        """
        self.times: BatchTimes
        """Times of what is warm; from `is_open` on, and updated from then."""
        self.is_open = False
        """Whether robots can be answered."""
        self._num_shapes, self._sizes = num_shapes, batch_sizes(max_batch)
        self._usual, self._counts_steps = usual_sampler(info), info.capabilities.samplers[0]
        self._left = _pieces(info.capabilities.samplers, self._usual, self._sizes, max(1, num_shapes))
        self._took: dict[Piece, list[int]] = {}
        self._first_ns = 0
        """By how much a first call exceeded the other calls of its piece: the newest, or for a policy with
        shapes the longest, since a call that reuses compiled code says nothing about what is left to
        compile."""
        self._num_steps: int | None = None
        self._wanted: Piece | None = None
        self._too_large: dict[type[SamplerPart], int] = {}
        """Batch sizes that failed, or would take too long."""

    @property
    def num_left(self) -> int:
        """Pieces that are still to be called, each a few times."""
        return len(self._left)

    @property
    def max_size(self) -> int:
        """The largest batch of the usual sampler part that may be made."""
        return max(self.sizes_of(self._usual), default=0)

    @property
    def warm(self) -> tuple[type[SamplerPart], ...]:
        """Sampler parts whose first call is over."""
        return tuple(piece.kind for piece in self._took if self._is_done(piece) and _is_first(piece))

    def next(self) -> Piece | None:
        """The piece to call next; None if none is left."""
        return self._left[0] if self._left else None

    def is_held(self, kind: type[SamplerPart]) -> bool:
        """Whether robots have to wait for a sampler part until it is warm."""
        return bool(self._num_shapes) and any(_is_first(p) and p.kind is kind for p in self._left)

    def want(self, kind: type[SamplerPart], size: int = 1) -> None:
        """Make it next, as `size` requests wait for it. Without shapes no request waits for a size."""
        piece = Piece(kind=kind, size=max([s for s in self._sizes if s <= size]))
        if piece in self._left:
            self._left.remove(piece)
        elif (
            not self._num_shapes or self._is_done(piece) or piece.size >= self._too_large.get(kind, 1 + size)
        ):
            return
        self._left.insert(0, piece)
        self._wanted = piece

    def is_wanted(self, piece: Piece) -> bool:
        """Whether requests are held for it."""
        return piece == self._wanted and self.is_held(piece.kind)

    def due_ns(
        self, piece: Piece, now_ns: int, *, is_waiting: bool, is_in_turn: bool, num_robots: int, quiet_ns: int
    ) -> int | None:
        """When the next piece may be called, `now_ns` for now; None if something else has to happen before.

        is_waiting: whether a request could run instead. is_in_turn: whether a batch was the last to run.
        num_robots: connected robots. quiet_ns: from when on no robot is expected to ask for what is warm.
        """
        if is_waiting and not is_in_turn:
            return None
        if self.expected_ns(piece) <= max(PATIENCE_NS, num_robots * self.times.by_size[1]):
            return now_ns
        return None if is_waiting else max(now_ns, quiet_ns)

    def expected_ns(self, piece: Piece) -> int:
        """Expected duration of the next call of a piece, from those of others [ns]."""
        if took := self._took.get(piece):
            return took[-1]
        if alone := self._took.get(Piece(kind=piece.kind)):
            return self._first_ns + piece.size * min(alone)
        more_ns = LONG_NS if piece.kind is RtcGuidance else 0  # nothing was differentiated before
        return self._first_ns + more_ns + piece.size * work(piece.kind) * self.times.by_size[1]

    def called(self, called: Called) -> str | None:
        """Note that a piece was called; return the news to report: what is warm now, or why it never will
        be."""
        piece = called.piece
        if called.error is not None:
            return self._give_up(piece, called.error)
        self._took.setdefault(piece, []).append(called.took_ns)
        if piece.kind is self._counts_steps and _is_first(piece):
            self._num_steps = called.num_evaluations // num_samples(piece.kind()) or None
        if not self._is_done(piece):
            return None
        if piece in self._left:
            self._left.remove(piece)
        took = self._took[piece]
        self._first_ns = max(self._first_ns if self._num_shapes else 0, took[0] - min(took))
        if min(took) > LONG_NS:
            self._leave_out(piece.kind, piece.size + 1)
        self._learn()
        return f"{_named(piece)} is warm; {self.num_left or 'nothing'} left to warm up"

    def sizes_of(self, kind: type[SamplerPart]) -> list[int]:
        """Batch sizes that were measured, smallest first."""
        return sorted(p.size for p in self._took if p.kind is kind and not p.shape and self._is_done(p))

    def _is_done(self, piece: Piece) -> bool:
        needed = NUM_CALLS if piece.size == 1 or self._num_shapes else NUM_MORE_CALLS
        return len(self._took.get(piece, ())) >= needed

    def _learn(self) -> None:
        by_size = {
            size: min(self._took[Piece(kind=self._usual, size=size)]) for size in self.sizes_of(self._usual)
        }
        by_kind = {kind: min(self._took[Piece(kind=kind)]) for kind in self.warm}
        sizes: Mapping[type[SamplerPart], Sequence[int]] | None = None
        if self._num_shapes:
            sizes = {kind: self.sizes_of(kind) for kind in self.warm}
        if self.is_open:
            self.times.learn(by_size, by_kind, self._num_steps, sizes=sizes)
        else:
            self.times = BatchTimes(by_size=by_size, by_kind=by_kind, num_steps=self._num_steps, sizes=sizes)
            self.is_open = True

    def _give_up(self, piece: Piece, error: Exception) -> str:
        """Serve its sampler part cold, or make smaller batches."""
        if piece.shape:
            self._left = [p for p in self._left if p != piece]
        else:
            self._leave_out(piece.kind, piece.size)
        return f"{_named(piece)} cannot be warmed up: {error}"

    def _leave_out(self, kind: type[SamplerPart], size: int) -> None:
        self._too_large[kind] = min(size, self._too_large.get(kind, size))
        self._left = [p for p in self._left if p.kind is not kind or p.size < size]


def usual_sampler(info: PolicyInfo) -> type[SamplerPart]:
    """The sampler part of the method that a policy runs by default."""
    try:
        return type(default_for(Default(), info.capabilities).method.sampler)
    except InvalidValueError:  # it supports none of the default methods
        return info.capabilities.samplers[0]


def _pieces(
    samplers: Sequence[type[SamplerPart]], usual: type[SamplerPart], sizes: Sequence[int], num_shapes: int
) -> list[Piece]:
    others = sorted((kind for kind in samplers if kind is not usual), key=work)
    out = [Piece(kind=usual, shape=shape) for shape in range(num_shapes)]
    for shape in range(num_shapes):
        out += [Piece(kind=kind, shape=shape) for kind in others]
        out += [Piece(kind=usual, size=size, shape=shape) for size in sizes[1:]]
    return out


def _named(piece: Piece) -> str:
    name = piece.kind.__name__ + ("" if piece.size == 1 else f" for {piece.size} robots at a time")
    return f"{name}, shape {piece.shape + 1}," if piece.shape else name


def _is_first(piece: Piece) -> bool:
    return piece.size == 1 and piece.shape == 0


def checked_rows(policy: Policy, rows: np.ndarray, first_row: int) -> np.ndarray:
    """The rows of an answer as they are sent; PolicyError if they are invalid.

    A copy: they wait to be sent while a policy may fill the same array with the next ones.
    """
    spec = policy.info.action_spec
    if not isinstance(rows, np.ndarray) or rows.dtype.kind not in "fiu":
        what = f"an array of {rows.dtype}" if isinstance(rows, np.ndarray) else f"{type(rows).__name__}"
        raise PolicyError(
            f"it gave {what} at row {first_row}; expected an array of numbers, rows of {spec.dim}"
        )
    rows = np.array(rows, dtype=np.float64 if rows.dtype == np.float64 else np.float32, order="C")
    if rows.ndim != 2 or rows.shape[1] != spec.dim or not 1 <= len(rows) <= spec.horizon - first_row:
        raise PolicyError(
            f"it gave rows of shape {rows.shape} at row {first_row}; "
            f"expected up to {spec.horizon - first_row} rows of {spec.dim} numbers"
        )
    if not is_finite(rows):
        row, column = np.argwhere(~np.isfinite(rows))[0]
        raise PolicyError(f"it gave {rows[row, column]} at row {first_row + row}, {spec.names[column]}")
    return rows


def infer_steps(policy: Policy, requests: Sequence[ChunkRequest]) -> Iterator[list[np.ndarray]]:
    """The new rows of each request, step by step, checked. Several requests only for a `BatchPolicy`."""
    if answers_batches(policy):
        return (new.rows for new in policy.infer_batch(requests))
    (request,) = requests
    return ([rows] for rows in policy.infer(request))


def zero_observation(schema: Schema, task: str) -> Observation:
    """An observation of the right shape, all zeros."""
    parts: dict[str, PartState] = {}
    for name, part in schema.parts.items():
        match part:
            case ArmSchema(num_joints=n):
                X_BE = pin.SE3.Identity() if schema.needs_hand(name) else None
                parts[name] = ArmState(q=np.zeros(n), dq=np.zeros(n), X_BE=X_BE)
            case GripperSchema():
                parts[name] = GripperState(width=0.0)
            case BaseSchema():
                parts[name] = BaseState(x_WB=np.zeros(3), V_WB_B=np.zeros(3))
    measured = {name: np.zeros(size) for name, size in schema.measured.items()}
    state = RobotState(t_ns=0, parts=parts, measured=measured)
    images = {
        name: Image(t_ns=0, pixels=np.zeros((height, width, 3), np.uint8))
        for name, (height, width) in schema.cameras.items()
    }
    environment_state = np.zeros(schema.environment_state_dim)
    return Observation(state=state, images=images, environment_state=environment_state, task=task)


def warm_up(
    policy: Policy,
    clock: Clock,
    *,
    max_batch: int = 1,
    open_ns: int | None = None,
    is_stopped: Callable[[], bool] = lambda: False,
) -> Warming:
    """Infer on zeros: with the usual sampler part, and then with the others that the policy supports.

    open_ns: how long to continue once robots could be answered [ns], with what is expected to fit; None:
        until all is warm.
    is_stopped: checked between steps, to end it.
    PolicyError if the result is invalid: NaN weights are found here and not by a robot.
    """
    warming = Warming(policy.info, max_batch=max_batch, num_shapes=num_shapes(policy))
    until_ns: int | None = None
    while (piece := warming.next()) is not None and not is_stopped():
        if warming.is_open and open_ns is not None:
            until_ns = until_ns or clock.now_ns() + open_ns
            if clock.now_ns() + warming.expected_ns(piece) > until_ns:
                break
        called = call_on_nothing(policy, piece, clock, is_stopped=is_stopped)
        if called.error is not None:
            raise called.error
        warming.called(called)
    return warming


def call_on_nothing(
    policy: Policy, piece: Piece, clock: Clock, *, is_stopped: Callable[[], bool] = lambda: False
) -> Called:
    """Make one call, cancelled between two steps on request; an exception is in the result."""
    started_ns, before = clock.now_ns(), num_evaluations(policy)
    try:
        with _in_shape(policy, piece.shape):
            _infer_nothing(policy, piece, is_stopped)
    except (PolicyError, NotShownError) as error:
        unfit = PolicyError(f"policy {policy.info.name!r} cannot be served: {error}")
        unfit.__cause__ = error
        return Called(piece=piece, error=unfit)
    except Exception as error:  # whatever a policy raises
        return Called(piece=piece, error=error)
    except SystemExit:
        return Called(piece=piece, error=PolicyError("it called exit()"))
    took_ns, passes = clock.now_ns() - started_ns, num_evaluations(policy) - before
    return Called(piece=piece, took_ns=took_ns, num_evaluations=passes)


def _in_shape(policy: Policy, shape: int) -> AbstractContextManager[None]:
    return policy.in_shape(shape) if num_shapes(policy) else nullcontext()  # type: ignore[attr-defined]


def _infer_nothing(policy: Policy, piece: Piece, is_stopped: Callable[[], bool]) -> None:
    observation = zero_observation(policy.info.schema, next(iter(policy.info.tasks), ""))
    rows = np.zeros((policy.info.action_spec.horizon, policy.info.action_spec.dim))
    planned, delay = (None, 0) if piece.kind in PREFIXLESS else (rows, 1)
    sampler = piece.kind()
    request = ChunkRequest(
        observation=observation, prev_action_chunk=planned, inference_delay=delay, sampler=sampler
    )
    end = answer_rows(sampler, horizon=policy.info.action_spec.horizon, inference_delay=delay)
    come = [0] * piece.size
    for step in infer_steps(policy, [request] * piece.size):
        for i, new in enumerate(step):
            if len(new):
                come[i] += len(checked_rows(policy, new, come[i]))
        if is_stopped():
            return
    if min(come) < end:
        raise PolicyError(f"it ended after {min(come)} rows of {end}")
