"""`python -m robot_runtime.cli` runs `robot-runtime`."""

import sys
from pathlib import Path

import robot_runtime
from robot_runtime.cli import main

# Python puts the working folder first; a user's folder named `policies` or `sim` must not hide ours.
_HOME = str(Path(robot_runtime.__file__).parents[1])
if Path(sys.path[0]).resolve() != Path(_HOME).resolve():
    sys.path.append(sys.path.pop(0))

sys.exit(main())
