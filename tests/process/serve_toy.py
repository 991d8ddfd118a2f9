"""A server process of a test's policy: `serve_toy.py ADDRESS JSON DELAY_MS HEARTBEAT_MS toy|continuing`."""

import logging
import sys
from pathlib import Path

from continuing import ContinuingPolicy
from toy import ToyPolicy

from policies.commands.serve import Serve, serve

if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(levelname)s %(message)s")
    address, path, delay_ms, heartbeat_ms, policy = sys.argv[1:]
    args = Serve(
        policy=(policy,),
        address=address,
        json=Path(path),
        delay_ms=float(delay_ms),
        heartbeat_ms=float(heartbeat_ms),
    )
    sys.exit(serve([ContinuingPolicy if policy == "continuing" else ToyPolicy], args))
