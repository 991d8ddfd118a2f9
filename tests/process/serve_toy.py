"""A server process of the toy policy: `serve_toy.py ADDRESS JSON DELAY_MS HEARTBEAT_MS`."""

import sys
from pathlib import Path

from toy import ToyPolicy

from robot_runtime.cli.serve import Serve, serve

if __name__ == "__main__":
    address, path, delay_ms, heartbeat_ms = sys.argv[1:]
    args = Serve(
        policy="toy",
        address=address,
        json=Path(path),
        delay_ms=float(delay_ms),
        heartbeat_ms=float(heartbeat_ms),
    )
    sys.exit(serve(ToyPolicy(), args))
