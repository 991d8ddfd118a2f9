"""Services of other packages for commands of this one: simulation, policies, calibrations.

`robot_runtime` imports no other package. One that is installed declares a module in the entry-point group
`robot_runtime.providers`, under the name of what it provides:

    simulation     simulated robots, tasks and their demonstrations    (sim.provided)
    policies       heads and checkpoints of policies                   (policies.provided)
    calibration    results of `robot-runtime calibrate`                (calibration.provided)
"""

from functools import cache
from importlib.metadata import entry_points
from typing import Any

from robot_runtime.errors import UnknownNameError

GROUP = "robot_runtime.providers"


@cache
def provider(name: str) -> Any:
    """Return the module that provides it. UnknownNameError: no installed package does."""
    found = {each.name: each for each in entry_points(group=GROUP)}
    if name not in found:
        raise UnknownNameError("provider among the installed packages", name, tuple(found))
    return found[name].load()
