"""What a server lets in, looked at from the cheapest to the dearest before it works on it: how much each
peer sends, and only what fits its policy."""

from collections.abc import Callable, Sequence

import numpy as np

from robot_runtime.core.method.sampler_parts import SamplerPart
from robot_runtime.core.values.action import NS_PER_S, ActionSpec
from robot_runtime.core.values.schema import ArmSchema, BaseSchema, GripperSchema, PartSchema, Schema
from robot_runtime.wire.arrays import WireTable
from robot_runtime.wire.payloads import (
    WireArm,
    WireBase,
    WireGripper,
    WireObservation,
    WirePart,
    WireRequest,
)

PACKETS_PER_S = 2000
"""Of one client; a robot needs about 40 heartbeats and up to 100 requests a second."""
PACKETS_AT_ONCE = 1000
STRANGER_PACKETS_PER_S, ONE_STRANGERS_PER_S = 1000, 20
"""Of all unknown peers together, and of one; beyond that they are not even read."""
MAX_MAGNITUDE = 1e9
"""Of a number in a request, whatever its unit: beyond, a policy's float32 is not far from its end."""
_STRANGER_BYTES = 4096  # a stranger's packet counts once for so many of its bytes
_MAX_PEERS = 4096


class RateLimit:
    """Lets `per_s` packets a second through, and `burst` of them at once."""

    def __init__(self, *, per_s: int, burst: int) -> None:
        self._cost_ns = NS_PER_S // per_s
        self._burst_ns = burst * self._cost_ns
        self._used_until_ns: int | None = None

    def take(self, now_ns: int, cost: int = 1) -> bool:
        """True if something that counts as so many packets is within the limit."""
        used_until_ns = now_ns if self._used_until_ns is None else max(self._used_until_ns, now_ns)
        is_allowed = used_until_ns + cost * self._cost_ns <= now_ns + self._burst_ns
        if is_allowed:
            self._used_until_ns = used_until_ns + cost * self._cost_ns
        return is_allowed


class PeerRates:
    """How much each peer may send. What it has used stays with it, however often it greets and leaves."""

    def __init__(self) -> None:
        self._rates: dict[bytes, RateLimit] = {}  # the one that spoke last comes last
        self._strangers = RateLimit(per_s=STRANGER_PACKETS_PER_S, burst=STRANGER_PACKETS_PER_S)

    def take(self, peer: bytes, num_bytes: int, now_ns: int, *, is_known: bool) -> bool:
        """True if one more packet of that peer is within the limits."""
        rate = self._rates.pop(peer, None) or RateLimit(per_s=PACKETS_PER_S, burst=PACKETS_AT_ONCE)
        self._rates[peer] = rate
        if len(self._rates) > _MAX_PEERS:
            del self._rates[next(iter(self._rates))]
        if is_known:
            return rate.take(now_ns)
        cost = 1 + num_bytes // _STRANGER_BYTES
        alone = cost * PACKETS_PER_S // ONE_STRANGERS_PER_S
        # By itself first: one that floods takes nothing from other strangers.
        return rate.take(now_ns, alone) and self._strangers.take(now_ns, cost)


def _shape(part: WirePart | PartSchema) -> str:
    """What it is, in words: both sides' are compared."""
    match part:
        case WireArm(q=q):
            return f"{len(q)} joints"
        case ArmSchema(names=names):
            return f"{len(names)} joints"
        case WireGripper() | GripperSchema():
            return "a gripper"
        case WireBase(pose=None):
            return "a base without a pose"
        case WireBase() | BaseSchema():
            return "a base"


def _numbers_of(part: WirePart) -> list[Sequence[float]]:
    match part:
        case WireArm(q=q, dq=dq, pose=pose):
            return [q, dq, (pose or ())[:3]]
        case WireGripper(width=width):
            return [(width,)]
        case WireBase(pose=pose, twist=twist):
            return [pose or (), twist or ()]


class Fit:
    """What a request must look like to fit one policy."""

    def __init__(
        self,
        *,
        schema: Schema,
        spec: ActionSpec,
        expected_ns: Callable[[SamplerPart], int | None],
        tasks: tuple[str, ...] = (),
        n_obs_steps: int = 1,
    ) -> None:
        """
        expected_ns: what a sampler part will take [ns]; None if it is the policy's ordinary work.
        tasks: texts that the policy was trained on; none if any will do.
        n_obs_steps: observations it looks at, the newest among them.
        """
        self._n_obs_steps = n_obs_steps
        self._spec, self._expected_ns, self._tasks = spec, expected_ns, tasks
        self._parts = {name: _shape(part) for name, part in schema.parts.items()}
        self._needed = (
            schema.environment_state_dim,
            {name: (*size, 3) for name, size in schema.cameras.items()},
            dict(schema.measured),
        )

    def misfit(self, form: WireRequest) -> str | None:
        """Why a request does not fit what was agreed, naming both sides, by its header; None if it does."""
        misfit = self._misfit_of(form.observation)
        if form.history:
            misfit = misfit or self._misfit_of_history(form)
        if misfit is not None:
            return misfit
        if self._tasks and form.task not in self._tasks:
            valid = ", ".join(map(repr, self._tasks))
            return f"the policy was not trained on the task {form.task[:200]!r}, but on {valid}"
        return self._misfit_of_plan(form.prev_action_chunk, form.inference_delay)

    def misfit_of_rows(self, rows: np.ndarray | None) -> str | None:
        """The same of the numbers of a plan, which are not in the header."""
        if rows is None or not rows.size or (largest := float(np.abs(rows).max())) <= MAX_MAGNITUDE:
            return None
        return f"prev_action_chunk holds {largest:.3g}; numbers go up to {MAX_MAGNITUDE:.0e}"

    def misfit_of_work(self, sampler: SamplerPart, useful_ns: int) -> str | None:
        """Why an answer cannot be worked out while it is of use [ns]."""
        expected_ns = self._expected_ns(sampler)
        useful_ns = min(useful_ns, self._spec.horizon * self._spec.dt_ns)
        if expected_ns is None or expected_ns <= useful_ns:
            return None
        return (
            f"{sampler} takes about {expected_ns / NS_PER_S:.3g} s here, and the answer is of use for "
            f"{useful_ns / NS_PER_S:.3g} s: ask for fewer samples or steps"
        )

    def _misfit_of(self, seen: WireObservation) -> str | None:
        return self._misfit_of_parts(seen) or self._misfit_of_sizes(seen) or self._misfit_of_numbers(seen)

    def _misfit_of_parts(self, seen: WireObservation) -> str | None:
        for name, needs in self._parts.items():  # more than it needs is of no use to it, and no harm
            if (has := _shape(seen.parts[name]) if name in seen.parts else "none") != needs:
                return f"{name}: the observation has {has}, the policy needs {needs}"
        return None

    def _misfit_of_sizes(self, seen: WireObservation) -> str | None:
        have = (
            len(seen.environment_state),
            {image.name: image.shape for image in seen.images},
            {name: len(numbers) for name, numbers in seen.measured.items() if name in self._needed[-1]},
        )
        if have != self._needed:
            kinds = ("numbers of environment state", "camera sizes", "quantities")
            for what, ours, theirs in zip(kinds, have, self._needed, strict=True):
                if ours != theirs:
                    return f"{what}: the observation has {ours}, the policy needs {theirs}"
        return None

    def _misfit_of_history(self, form: WireRequest) -> str | None:
        if len(form.history) >= self._n_obs_steps:
            return f"there are {1 + len(form.history)} observations, the policy looks at {self._n_obs_steps}"
        for seen in form.history:
            if (misfit := self._misfit_of(seen)) is not None:
                return f"earlier {misfit}"
        *times, newest_ns = (seen.t_obs_ns for seen in (*form.history, form.observation))
        if sorted(times) != times or times[-1] > newest_ns:
            return f"earlier observations come oldest first, got {times} ns before {newest_ns} ns"
        return None

    def _misfit_of_numbers(self, seen: WireObservation) -> str | None:
        parts = [numbers for part in seen.parts.values() for numbers in _numbers_of(part)]
        for part in (*parts, seen.environment_state, *seen.measured.values()):
            if part and max(max(part), -min(part)) > MAX_MAGNITUDE:
                largest = max(part, key=abs)
                return f"the observation holds {largest:.3g}; numbers go up to {MAX_MAGNITUDE:.0e}"
        return None

    def _misfit_of_plan(self, planned: WireTable | None, inference_delay: int) -> str | None:
        limit = (self._spec.horizon, self._spec.dim)
        rows, columns = (0, self._spec.dim) if planned is None else planned.shape
        if columns != self._spec.dim or rows > self._spec.horizon:
            return f"prev_action_chunk has shape {(rows, columns)}, the policy takes up to {limit}"
        if inference_delay > rows:
            return f"inference_delay is {inference_delay}, but prev_action_chunk has {rows} rows"
        return None
