"""`python -m robot_runtime.cli` is `robot-runtime`."""

import sys

from robot_runtime.cli import main

sys.exit(main())
