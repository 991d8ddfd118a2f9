"""A simulated operator of a robot: `Person`, and the actions in a tick, `Act`."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from robot_runtime.core.executor import Executor
from robot_runtime.core.orders import HandBack, Order, SayPhase, TakenOrder, TakeOver
from robot_runtime.core.tick import Tick
from robot_runtime.core.values.command import PartCommand
from robot_runtime.core.values.state import Observation
from robot_runtime.errors import RobotRuntimeError


@dataclass(frozen=True, kw_only=True, eq=False)
class Act:
    """The operator's requests after one tick, and the commands for their parts in the next."""

    orders: tuple[Order, ...] = ()
    wishes: Mapping[str, PartCommand] = field(default_factory=dict)


class Person(Protocol):
    """Watches, and takes over by a rule of its own."""

    @property
    def name(self) -> str:
        """Name of the operator, in the log."""
        ...

    def begin(self, seed: int) -> None:
        """An episode begins."""
        ...

    def act(self, tick: Tick, seen: Observation) -> Act:
        """Act after a tick; seen: the policy's observation, without images."""
        ...


def do(
    act: Act, executor: Executor, now_ns: int, *, by: str, posted_ns: int, note: Callable[[TakenOrder], None]
) -> None:
    """Execute orders before the next tick, as in a run; a refused one is noted like the others.

    ValueError: an order that only a session can execute.
    """
    for order in act.orders:
        refused = ""
        try:
            match order:
                case TakeOver(parts=parts):
                    executor.take_over(parts, now_ns)
                case HandBack(parts=parts):
                    executor.hand_back(parts, now_ns)
                case SayPhase(phase=phase, parts=parts):
                    executor.say_phase(parts, phase)
                case _:
                    raise ValueError(f"a person in simulation takes over and hands back, got {order!r}")
        except RobotRuntimeError as error:
            refused = str(error)
        note(TakenOrder(order=order, by=by, posted_ns=posted_ns, done_ns=now_ns, refused=refused))
    if executor.taken_over:
        executor.lead(act.wishes, now_ns)
