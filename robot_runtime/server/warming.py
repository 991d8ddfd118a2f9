"""What a policy has been asked for once, so that no robot pays for first calls: `Warming`, without I/O.

    piece         one call of the policy on nothing: a sampler part, a size of batch, a shape
    open          the usual sampler part is warm for one robot: the server opens
    then          a piece at a time between requests, smallest first

    worker   |usual x 1|: open |batch| other x 1 |batch| batch | usual x 2 |  ...  | usual x 4 |
    robots                      asks              asks   asks

A piece that takes no longer than one request of every robot that is there goes between any two batches: a
request waits for at most one of them. One that takes longer, since torch compiles in it, waits until no robot
has been there for QUIET_NS, or none that is there has asked for IDLE_NS: a robot that runs is not stopped for
what others may ask one day.

A policy that has shapes (`core.policy.num_shapes`) is asked by robots only for what is warm: its batches have
sizes that are, and a request for a sampler part that is not is held, which makes that part the next. Of any
other policy a first call costs little: all sampler parts are served at once, and larger batches are made when
it is known how long they take.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from robot_runtime.core.method.choose import Default, default_for
from robot_runtime.core.method.sampler_parts import RtcGuidance, SamplerPart, num_samples
from robot_runtime.core.policy_info import PolicyInfo
from robot_runtime.core.values.action import NS_PER_MS, NS_PER_S
from robot_runtime.errors import InvalidValueError
from robot_runtime.server.batcher import BatchTimes, batch_sizes, work

NUM_CALLS = 3
"""Of a policy with shapes, or for one robot: torch compiles in the first, and records graphs in the next."""
NUM_MORE_CALLS = 2
"""Of any other policy for more robots."""
LONG_NS = NS_PER_S // 2
"""No larger batch is made than the first that takes longer."""
OPEN_NS = 3 * NS_PER_S
"""For so long a server that could open goes on with what fits, which is all of it for most policies."""
PATIENCE_NS = 20 * NS_PER_MS
"""A piece that takes no longer may keep a request waiting, whatever the policy takes by itself."""
QUIET_NS, IDLE_NS = 2 * NS_PER_S, 10 * NS_PER_S
"""Nobody has come for so long, or nobody who is there has asked, or has only just come: then pieces may take
long."""


@dataclass(frozen=True, kw_only=True)
class Piece:
    """What one call is for."""

    kind: type[SamplerPart]
    size: int = 1
    """Of its batch."""
    shape: int = 0
    """Which of the policy's."""


@dataclass(frozen=True, kw_only=True)
class Called:
    """What came of a piece."""

    piece: Piece
    took_ns: int = 0
    num_evaluations: int = 0
    """Passes of one chunk through the network, if the policy counts them."""
    error: Exception | None = None


class Warming:
    """Of one policy; owned by one thread: the worker's until the server opens, the network's from then on."""

    def __init__(self, info: PolicyInfo, *, max_batch: int, num_shapes: int = 0) -> None:
        """
        max_batch: robots that are answered together at most, once all is warm.
        num_shapes: of the policy; 0 for one that has none.
        """
        self.times: BatchTimes
        """Of what is warm; from `is_open` on, and learnt from there."""
        self.is_open = False
        """Whether robots can be answered."""
        self._num_shapes, self._sizes = num_shapes, batch_sizes(max_batch)
        self._usual, self._counts_steps = usual_sampler(info), info.capabilities.samplers[0]
        self._left = _pieces(info.capabilities.samplers, self._usual, self._sizes, max(1, num_shapes))
        self._took: dict[Piece, list[int]] = {}
        self._first_ns = 0
        """What a first call took longer than the others of its piece: the newest, or of a policy with shapes
        the longest, since one that finds another's code says nothing of what is still to be compiled."""
        self._num_steps: int | None = None
        self._wanted: Piece | None = None
        self._too_large: dict[type[SamplerPart], int] = {}
        """Sizes of batch that failed, or would take too long."""

    @property
    def num_left(self) -> int:
        """Pieces that are to be called still, each a few times."""
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
        """What is to be called; None if nothing is left."""
        return self._left[0] if self._left else None

    def is_held(self, kind: type[SamplerPart]) -> bool:
        """Whether robots have to wait for a sampler part until it is warm."""
        return bool(self._num_shapes) and any(_is_first(p) and p.kind is kind for p in self._left)

    def want(self, kind: type[SamplerPart], size: int = 1) -> None:
        """So many wait for that: it is next. Of a policy without shapes nobody has to wait for a size."""
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
        num_robots: who are connected. quiet_ns: from when on nobody is expected to ask for what is warm.
        """
        if is_waiting and not is_in_turn:
            return None
        if self.expected_ns(piece) <= max(PATIENCE_NS, num_robots * self.times.by_size[1]):
            return now_ns
        return None if is_waiting else max(now_ns, quiet_ns)

    def expected_ns(self, piece: Piece) -> int:
        """What the next call of a piece will take, judged by what others took [ns]."""
        if took := self._took.get(piece):
            return took[-1]
        if alone := self._took.get(Piece(kind=piece.kind)):
            return self._first_ns + piece.size * min(alone)
        more_ns = LONG_NS if piece.kind is RtcGuidance else 0  # nothing was differentiated before
        return self._first_ns + more_ns + piece.size * work(piece.kind) * self.times.by_size[1]

    def called(self, called: Called) -> str | None:
        """A piece was called; what to say of that: what is warm now, or why it never will be."""
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
        """Of batches that were measured, smallest first."""
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
        """Its sampler part will be served as it is, or batches will be smaller."""
        if piece.shape:
            self._left = [p for p in self._left if p != piece]
        else:
            self._leave_out(piece.kind, piece.size)
        return f"{_named(piece)} cannot be warmed up: {error}"

    def _leave_out(self, kind: type[SamplerPart], size: int) -> None:
        self._too_large[kind] = min(size, self._too_large.get(kind, size))
        self._left = [p for p in self._left if p.kind is not kind or p.size < size]


def usual_sampler(info: PolicyInfo) -> type[SamplerPart]:
    """Of the method that a policy is run by if nobody says another."""
    try:
        return type(default_for(Default(), info.capabilities).method.sampler)
    except InvalidValueError:  # it takes none of the default methods
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
