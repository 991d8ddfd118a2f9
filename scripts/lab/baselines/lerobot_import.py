"""LeRobot's RTC engine, imported: which names we use, and the one detour on the way to them.

`lerobot.rollout`'s `__init__` asks for the `datasets` package (recording), which pulls pandas, pyarrow and an
older PyAV than ours; its RTC engine needs none of it. So the engine's own files are imported as they are,
under a `lerobot.rollout` whose `__init__` does not run.
"""

import importlib
import importlib.metadata
import importlib.util
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType

from robot_runtime.errors import RobotRuntimeError

TESTED_VERSION = "0.6.1"


class PeerMissingError(RobotRuntimeError):
    """The peer is not installed, or not in the version this was written for."""


def lerobot_problem() -> str | None:
    """Why LeRobot's engine cannot be used here; None if it can. Imports nothing."""
    if importlib.util.find_spec("lerobot") is None:
        return "lerobot is not installed: uv sync --extra sim --extra policies --extra lerobot"
    version = importlib.metadata.version("lerobot")
    if version != TESTED_VERSION:
        return f"needs lerobot {TESTED_VERSION}, found {version}"
    return None


def rtc_engine_module() -> ModuleType:
    """`lerobot.rollout.inference.rtc`; PeerMissingError says what is missing."""
    return import_without_init("lerobot.rollout", "inference.rtc")


def import_without_init(package: str, module: str) -> ModuleType:
    """`package.module`, without the requirements of the package's `__init__`."""
    problem = lerobot_problem()
    if problem is not None:
        raise PeerMissingError(problem)
    with _without_init(package):
        return importlib.import_module(f"{package}.{module}")


@contextmanager
def _without_init(package: str) -> Iterator[None]:
    """Within the block, submodules of `package` import without its `__init__`."""
    if package in sys.modules:
        yield
        return
    parent, _, name = package.rpartition(".")
    bare = ModuleType(package)
    bare.__path__ = [f"{path}/{name}" for path in importlib.import_module(parent).__path__]
    sys.modules[package] = bare
    try:
        yield
    finally:
        del sys.modules[package]
