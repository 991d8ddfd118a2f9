"""Records what the limits cut from commands: `Clip` for one command, `ClipTally` for a run."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, TypedDict, Unpack

from robot_runtime.core.plan.axis_limiter import Shortfall
from robot_runtime.core.values.action import NS_PER_S
from robot_runtime.core.values.state import ARM


class _OfDefaultParts(TypedDict, total=False):
    arm: Shortfall | None
    gripper: Shortfall | None
    base: Shortfall | None


@dataclass(frozen=True, init=False)
class Clip:
    """What the limits cut from a command, part by part; false if it passed unchanged."""

    parts: Mapping[str, Shortfall]
    """The shortfalls of the parts that were held back, by name."""

    def __init__(
        self, parts: Mapping[str, Shortfall] | None = None, **of_default_parts: Unpack[_OfDefaultParts]
    ) -> None:
        """of_default_parts: `arm`, `gripper`, `base`."""
        mine: dict[str, Any] = {} if parts is None else dict(parts)
        mine |= {name: short for name, short in of_default_parts.items() if short is not None}
        self.__dict__["parts"] = MappingProxyType(mine)

    def __bool__(self) -> bool:
        return bool(self.parts)

    @property
    def arm(self) -> Shortfall | None:
        """The shortfall of the part "arm"."""
        return self.parts.get(ARM)

    @property
    def distance(self) -> float:
        """How far the worst part stays from its target [rad] or [m]."""
        return max((part.distance for part in self.parts.values()), default=0.0)

    def has(self, kind: str) -> bool:
        """Whether that kind of limit, a field of `Shortfall`, held any part back."""
        return any(getattr(part, kind) for part in self.parts.values())


NOTHING = Clip()
"""The clip of a command that passed unchanged."""
UNSEEN = 1e-3
"""How far a part may lag its target without a report [rad] or [m]."""
KINDS = ("position", "velocity", "acceleration", "jerk", "not_finite")


@dataclass(kw_only=True)
class ClipTally:
    """How often each kind of limit held a part back, and how far behind its target that left it."""

    period_ns: int
    num_ticks: dict[tuple[str, str], int] = field(default_factory=dict)
    """Ticks by part and kind."""
    farthest: dict[tuple[str, str], float] = field(default_factory=dict)
    """Largest distance by part and kind, in the unit of the part's commands."""
    units: dict[str, str] = field(default_factory=dict)
    """Part -> unit of its commands."""

    def add(self, clip: Clip) -> None:
        """Count one command's clip."""
        for part, short in clip.parts.items():
            for kind in KINDS:
                if getattr(short, kind):
                    self._count(part, kind, 1, short.distance)

    def _count(self, part: str, kind: str, num_ticks: int, farthest: float) -> None:
        key = part, kind
        self.num_ticks[key] = self.num_ticks.get(key, 0) + num_ticks
        self.farthest[key] = max(self.farthest.get(key, 0.0), farthest)

    def figures(self) -> dict[str, tuple[int, float]]:
        """Number of ticks and largest distance [rad] or [m], by "part kind"."""
        return {" ".join(key): (count, self.farthest[key]) for key, count in self.num_ticks.items()}

    def add_figures(self, figures: Mapping[str, tuple[int, float]]) -> None:
        """Add the `figures` of another run."""
        for name, (count, farthest) in figures.items():
            part, kind = name.split()
            self._count(part, kind, count, farthest)

    def sentences(self) -> list[str]:
        """One sentence for each part and kind that was held back, except corners rounded by less than
        `UNSEEN`."""
        out = []
        for (part, kind), count in sorted(self.num_ticks.items()):
            seconds, far = count * self.period_ns / NS_PER_S, self.farthest[part, kind]
            if far < UNSEEN and kind in ("acceleration", "jerk"):
                continue
            if kind == "not_finite":
                out.append(f"{part}: braked for {seconds:.2f} s because its target was not finite")
            else:
                out.append(
                    f"{part}: held back by its {kind} limit for {seconds:.2f} s, by up to {far:.3g}"
                    f" {self.units.get(part, '')}".rstrip()
                )
        return out
