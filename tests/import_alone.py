"""Imports each module of ours first of all, and writes those that failed as JSON.

Each is imported in a process that has loaded other people's packages, and of ours nothing but one module that
it imports itself at its top, with what that one imports: as no modules import each other in a circle
(test_arrows.py), loading these before it or from within it is the same. So processes fork like this tree:

    others' packages ── a ── b, which imports a
                        └─── c, which imports a and d

Reads {"modules": [...], "after": {module: module or null}, "preload": [...], "blocked": [...]}.
"""

import gc
import importlib
import json
import os
import sys
from importlib.abc import MetaPathFinder


class Blocker(MetaPathFinder):
    """As if these were not installed."""

    def __init__(self, names: list[str]) -> None:
        self._names = frozenset(names)

    def find_spec(self, fullname, path=None, target=None):
        if fullname in self._names:
            raise ModuleNotFoundError(f"No module named {fullname!r}, as it is an extra", name=fullname)


def main() -> None:
    orders = json.load(sys.stdin)
    modules = orders["modules"]
    for name in orders["preload"]:
        importlib.import_module(name)
    sys.meta_path.insert(0, Blocker(orders["blocked"]))
    ours = {name.partition(".")[0] for name in modules}
    assert not [name for name in sys.modules if name.partition(".")[0] in ours]
    gc.freeze()  # so that children do not copy what they never look at
    then: dict[str | None, list[str]] = {}
    for name in modules:
        then.setdefault(orders["after"][name], []).append(name)
    failures: dict[str, str] = {}
    for name in then[None]:
        failures |= failures_from(name, then)
    json.dump(failures, sys.stdout)


def failures_from(module: str, then: dict[str | None, list[str]]) -> dict[str, str]:
    """What went wrong in a process of its own with this module, and with those that come after it."""
    reading, writing = os.pipe()
    if (child := os.fork()) == 0:
        gc.disable()
        os.close(reading)
        out: dict[str, str] = {}
        try:
            importlib.import_module(module)
        except BaseException as error:
            out[module] = f"{type(error).__name__}: {error}"[:4000]
        else:
            for name in then.get(module, ()):
                out |= failures_from(name, then)
        with os.fdopen(writing, "w") as pipe:
            json.dump(out, pipe)
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        said = pipe.read()
    _, status = os.waitpid(child, 0)
    return json.loads(said) if said else {module: f"ended with {status}"}


if __name__ == "__main__":
    main()
