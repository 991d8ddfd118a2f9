"""Colours and markers of the comparison's methods.

A hue is a family of methods, a shade with its marker is one of the family. Hues are Okabe and Ito's, which
people tell apart with any kind of colour vision.
"""

from collections.abc import Sequence

from matplotlib.colors import to_rgb

from robot_runtime.core.method.request_parts import RolledForwardState, Synchronous
from robot_runtime.core.method.sampler_parts import (
    ClampedPrefix,
    ConstantSchedule,
    HorizonAwareSchedule,
    LambdaMaskedPrefix,
    PrefixPreservedStart,
)
from robot_runtime.core.method.splice_parts import PerRowCorrection
from robot_runtime.core.method.table import Method
from scripts.lab.methods import EXPERT, contestant_named

HUES = {
    "stands still": "#555555",
    "only splices": "#d55e00",
    "guided or chosen": "#009e73",
    "trained with prefixes": "#0072b2",
    "state ahead": "#aa4499",
    "corrected on the robot": "#56b4e9",
    "other engines": "#e69f00",
}
_MARKERS = "osD^vPX*"


def family(method_name: str) -> str:
    """Return a method's family, from its parts."""
    method = contestant_named(method_name)
    if not isinstance(method, Method):
        return "other engines"
    if isinstance(method.request, Synchronous):
        return "stands still"
    if isinstance(method.request, RolledForwardState):
        return "state ahead"
    if isinstance(method.correction, PerRowCorrection):
        return "corrected on the robot"
    match method.sampler:
        case ClampedPrefix() | PrefixPreservedStart() | LambdaMaskedPrefix() | HorizonAwareSchedule():
            return "trained with prefixes"
        case ConstantSchedule():
            return "only splices"
    return "guided or chosen"


class Style:
    """Colour and marker of every method of a page."""

    def __init__(self, methods: Sequence[str]) -> None:
        order = list(HUES)
        self.methods = sorted(
            (m for m in dict.fromkeys(methods) if m != EXPERT),
            key=lambda m: order.index(family(m)),
        )
        self.families = [name for name in order if any(family(m) == name for m in self.methods)]

    def colour(self, method: str) -> tuple[float, float, float]:
        """The family's hue, lighter from member to member."""
        if method == EXPERT:
            return to_rgb("black")
        members = [m for m in self.methods if family(m) == family(method)]
        lighter = 0.55 * members.index(method) / max(len(members) - 1, 1)
        r, g, b = (channel + lighter * (1.0 - channel) for channel in to_rgb(HUES[family(method)]))
        return r, g, b

    def marker(self, method: str) -> str:
        members = [m for m in self.methods if family(m) == family(method)]
        return _MARKERS[members.index(method) % len(_MARKERS)] if method in members else "_"


def darker(colour: tuple[float, float, float]) -> tuple[float, float, float]:
    """Dark enough to read as text on white."""
    r, g, b = (0.75 * channel for channel in colour)
    return r, g, b
