"""Methods of the comparison, by their names on the page."""

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

from robot_runtime.core.method.request_parts import FixedExecutionHorizon
from robot_runtime.core.method.sampler_parts import AveragedSamples, BestOfSamples
from robot_runtime.core.method.table import METHODS, Method, method_named
from robot_runtime.errors import UnknownNameError
from scripts.lab.baselines.lerobot_contestant import LeRobotEngine
from scripts.lab.baselines.lerobot_import import lerobot_problem
from scripts.lab.baselines.lerobot_settings import Variant
from sim.episodes.evaluation import Contestant, DelayedExpert

EXPERT = "delayed-expert"
"""The physical limit."""
NUM_SAMPLES = 4
"""Of the methods that draw several chunks: their own 16 cost four times as much again."""
OFTEN = FixedExecutionHorizon().rows
"""Rows to run before asking again, as all that go on while they ask have it."""
PEER_VARIANTS = (Variant.DEFAULTS, Variant.BEST_WIDE, Variant.BEST_NARROW, Variant.REPLACE)


def _with_fewer_samples(name: str, method: Method) -> tuple[str, Method]:
    if not isinstance(method.sampler, BestOfSamples | AveragedSamples):
        return name, method
    sampler = replace(method.sampler, num_samples=NUM_SAMPLES)
    return f"{name}-{NUM_SAMPLES}", replace(method, sampler=sampler)


PEERS: Mapping[str, LeRobotEngine] = MappingProxyType(
    {f"lerobot-{variant.value}": LeRobotEngine(variant=variant) for variant in PEER_VARIANTS}
)
CONTESTANTS: Mapping[str, Contestant] = MappingProxyType(
    {
        EXPERT: DelayedExpert(),
        f"synchronous-{OFTEN}": method_named("synchronous", execution_horizon=OFTEN),
        **dict(_with_fewer_samples(name, method) for name, method in METHODS.items()),
        **PEERS,
    }
)
"""All of the comparison; a method that draws several chunks has their number in its name, and `synchronous`
runs whole chunks, and as few rows of each as the others."""


def contestant_names() -> tuple[str, ...]:
    """Those that can run in this installation."""
    return tuple(name for name in CONTESTANTS if name not in PEERS or lerobot_problem() is None)


def contestant_named(name: str) -> Contestant:
    """One of the comparison, or a method as it stands in `METHODS`; UnknownNameError lists the names."""
    known: Mapping[str, Contestant] = {**METHODS, **CONTESTANTS}
    if name not in known:
        raise UnknownNameError("method", name, known)
    return known[name]
