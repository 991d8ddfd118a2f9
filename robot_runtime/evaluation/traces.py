"""Latency of answers: `LatencyTrace`, the same for every method that is compared.

A trace is a function of the capture time, and not of the request's number: a method that asks more often
meets the same network, only more often. It is a row of slots that repeats at its end.

    capture    0        50       100      150      200 ms
               |--------|--------|--------|--------|---
    delay         100      100      600      lost         counted from capture to the whole answer

Each episode starts at a point of the trace that is drawn from the episode's seed.
"""

import json
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

import numpy as np

from robot_runtime.core.values.action import NS_PER_MS, NS_PER_S
from robot_runtime.core.values.shapes import Int
from robot_runtime.core.values.state import readonly
from robot_runtime.errors import InvalidValueError, UnknownNameError

SLOT_NS = 50 * NS_PER_MS
LOST = -1
"""In place of a delay: observations captured in this slot are never answered."""
NUM_SLOTS = 2400
"""Two minutes: longer than any episode."""
MIN_DEADLINE_NS = NS_PER_S
FORMAT = 1
_OFFSET_STREAM = 0x7ACE


@dataclass(frozen=True, kw_only=True, eq=False)
class LatencyTrace:
    """The delay from capture to the end of the answer, for every capture time."""

    name: str
    delays_ns: Int[np.ndarray, " n"]
    """Delay of each slot [ns]; `LOST` where there is no answer."""
    slot_ns: int = SLOT_NS
    starts_with_episode: bool = False
    """Slot 0 is the start of the episode and the last slot continues for ever: to model a start."""

    def __post_init__(self) -> None:
        delays = readonly(self.delays_ns, dtype=np.int64)
        object.__setattr__(self, "delays_ns", delays)
        if delays.ndim != 1 or not len(delays) or self.slot_ns <= 0:
            raise InvalidValueError(
                f"a trace needs at least one slot of positive length, got {delays.shape} of {self.slot_ns} ns"
            )
        if (delays < LOST).any() or (delays == LOST).all():
            raise InvalidValueError(
                f"trace {self.name!r} needs delays >= 0 ns, and at least one answered slot"
            )

    def offset_ns(self, seed: int) -> int:
        """Start of this seed's episode in the trace [ns]; on a slot's edge."""
        if self.starts_with_episode:
            return 0
        rng = np.random.default_rng([_OFFSET_STREAM, seed])
        return int(rng.integers(2**62)) % len(self.delays_ns) * self.slot_ns

    def delay_ns(self, t_ns: int) -> int | None:
        """Delay of an observation captured at a time of the trace [ns]; None if it is lost."""
        slot, n = t_ns // self.slot_ns, len(self.delays_ns)
        delay = int(self.delays_ns[min(slot, n - 1) if self.starts_with_episode else slot % n])
        return None if delay == LOST else delay

    def quantile_ns(self, quantile: float) -> int:
        """A quantile of the delays of answered slots [ns]."""
        return int(np.quantile(self.delays_ns[self.delays_ns != LOST], quantile, method="higher"))

    @property
    def deadline_ns(self) -> int:
        """Timeout of a sensible client [ns]: twice the 99th percentile, at least 1 s."""
        return max(2 * self.quantile_ns(0.99), MIN_DEADLINE_NS)

    @property
    def fingerprint(self) -> str:
        """A hash of everything but the name."""
        head = f"{self.slot_ns} {self.starts_with_episode} ".encode()
        return sha256(head + self.delays_ns.astype("<i8").tobytes()).hexdigest()[:16]

    def save(self, path: Path) -> None:
        """Write it as JSON; a lost slot is null."""
        delays = [None if delay == LOST else delay for delay in self.delays_ns.tolist()]
        data = {"format": FORMAT, **vars(self), "delays_ns": delays}
        path.write_text(json.dumps(data) + "\n")

    @classmethod
    def load(cls, path: Path) -> "LatencyTrace":
        """What `save` wrote, or a measurement in the same form; InvalidValueError if it is neither."""
        try:
            data = json.loads(path.read_text())
            found = data.pop("format")
            if found != FORMAT:
                raise InvalidValueError(f"{path}: expected trace format {FORMAT}, found {found}")
            delays = [LOST if delay is None else delay for delay in data.pop("delays_ns")]
            return cls(delays_ns=np.array(delays, dtype=np.int64), **data)
        except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
            if isinstance(error, InvalidValueError):
                raise
            raise InvalidValueError(f"{path} is not a latency trace: {error}") from error


def constant(delay_ms: float) -> LatencyTrace:
    """A constant delay."""
    return LatencyTrace(name=f"{delay_ms:g}ms", delays_ns=np.array([round(delay_ms * NS_PER_MS)]))


def lognormal(*, median_ms: float = 200.0, sigma: float = 0.35, seed: int = 0) -> LatencyTrace:
    """Independent lognormal delays: a model of a busy network and a shared GPU.

    sigma: of the logarithm; 0.35 puts the 99th percentile at 2.3 times the median.
    """
    draws = np.random.default_rng([seed, 1]).standard_normal(NUM_SLOTS)
    return LatencyTrace(name="lognormal", delays_ns=_rounded(median_ms * np.exp(sigma * draws)))


def spikes(
    *, base_ms: float = 100.0, spike_ms: float = 600.0, share: float = 0.05, seed: int = 0
) -> LatencyTrace:
    """A steady delay with a share of slots that take far longer, independent of each other."""
    is_spike = np.random.default_rng([seed, 2]).random(NUM_SLOTS) < share
    return LatencyTrace(name="spikes", delays_ns=_rounded(np.where(is_spike, spike_ms, base_ms)))


def loss_bursts(
    *, base_ms: float = 100.0, every_s: float = 4.0, longest_s: float = 0.5, seed: int = 0
) -> LatencyTrace:
    """A steady delay, and bursts without any answer.

    every_s: mean of the exponentially distributed time from the end of a burst to the next [s].
    longest_s: a burst lasts between one slot and this, uniform [s].
    """
    rng, slots_per_s = np.random.default_rng([seed, 3]), NS_PER_S / SLOT_NS
    delays, slot = _rounded(np.full(NUM_SLOTS, base_ms)), 0
    while True:
        slot += 1 + int(rng.exponential(every_s) * slots_per_s)
        length = int(rng.integers(1, int(longest_s * slots_per_s) + 1))
        if slot >= NUM_SLOTS:
            break
        delays[slot : slot + length] = LOST
        slot += length
    return LatencyTrace(name="loss", delays_ns=delays)


def cold_start(*, base_ms: float = 100.0, ready_s: float = 1.5) -> LatencyTrace:
    """A server that answers nothing before it has warmed up, `ready_s` into the episode, and then quickly."""
    captured_ms = np.arange(int(ready_s * NS_PER_S / SLOT_NS) + 1) * SLOT_NS / NS_PER_MS
    delays = np.maximum(ready_s * 1e3 - captured_ms, base_ms)
    return LatencyTrace(name="cold-start", delays_ns=_rounded(delays), starts_with_episode=True)


def standard_traces() -> dict[str, LatencyTrace]:
    """The traces of the comparison that are not constant, by name."""
    traces = (lognormal(), spikes(), loss_bursts(), cold_start())
    return {trace.name: trace for trace in traces}


def find_trace(name_or_path: str) -> LatencyTrace:
    """A standard trace by name, a constant one such as "300ms", or the one in a file.

    UnknownNameError lists the valid names.
    """
    if name_or_path in (traces := standard_traces()):
        return traces[name_or_path]
    number = name_or_path.removesuffix("ms")
    if number != name_or_path and number.replace(".", "", 1).isdigit():
        return constant(float(number))
    if not Path(name_or_path).is_file():
        raise UnknownNameError("trace or trace file", name_or_path, (*traces, "<number>ms"))
    return LatencyTrace.load(Path(name_or_path))


def _rounded(delays_ms: np.ndarray) -> np.ndarray:
    return np.round(delays_ms * NS_PER_MS).astype(np.int64)
