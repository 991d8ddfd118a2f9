"""`python -m robot_runtime.cli` is `robot-runtime`."""

import sys
from pathlib import Path

import robot_runtime
from robot_runtime.cli import main

# Python has put the working folder first. A user's own folder called `policies` or `sim` is not ours.
_HOME = str(Path(robot_runtime.__file__).parents[1])
if Path(sys.path[0]).resolve() != Path(_HOME).resolve():
    sys.path.append(sys.path.pop(0))

sys.exit(main())
