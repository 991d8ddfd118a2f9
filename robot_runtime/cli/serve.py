"""`robot-runtime serve`: a policy on an address, until Ctrl-C."""

import json
import logging
import os
import signal
import sys
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from policies.policy import Policy
from robot_runtime.server.delay import Delay
from robot_runtime.server.memory import keep_freed_memory
from robot_runtime.server.server import HEARTBEAT_NS, PolicyServer
from robot_runtime.transport import DEFAULT_ADDRESS

EXIT_INTERRUPTED = 130
"""As a shell says of a command that Ctrl-C ended: 128 + SIGINT."""
_SWITCH_INTERVAL_S = 0.0005


@dataclass(frozen=True, kw_only=True)
class Serve:
    """Run an inference server: loads a policy, warms it up, then answers robots until Ctrl-C."""

    policy: str
    """A scripted policy (hold, sine, track, pick_place) or the folder of a trained one."""
    address: str = DEFAULT_ADDRESS
    """Where to listen. Port * takes a free one. Anyone who reaches the address can use the policy."""
    delay_ms: float = 0.0
    """Hold every answer back for so long [ms], as a slow network would: the policy goes on meanwhile."""
    delay_sigma: float = 0.0
    """Spread of the delay: standard deviation of the logarithm of its lognormal factor."""
    delay_seed: int = 0
    """Seed of the spread."""
    heartbeat_ms: float = HEARTBEAT_NS / 1e6
    """How often robots ask for a sign of life [ms]; they give up after five are missing."""
    torch_threads: int | None = None
    """Threads torch may use; None leaves it to torch. No effect on a policy without torch."""
    json: Path | None = None
    """Write address, process id and policy to this file once ready."""

    def main(self) -> int:
        """Serve the policy that was asked for; returns the exit code."""
        from policies.loading import load_policy  # loads torch for a trained policy: not before it is needed

        return serve(load_policy(self.policy), self)


def serve(policy: Policy, args: Serve) -> int:
    """Serve until SIGINT (exit code 130) or SIGTERM (0)."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(levelname)s %(message)s")
    if args.torch_threads is not None and "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(args.torch_threads)
    tune_process()
    delay = Delay(median_ms=args.delay_ms, sigma=args.delay_sigma, seed=args.delay_seed)
    heartbeat_ns = round(args.heartbeat_ms * 1e6)
    received: list[int] = []
    with PolicyServer(policy, args.address, delay=delay, heartbeat_ns=heartbeat_ns) as server:

        def stop(number: int, frame: FrameType | None) -> None:
            received.append(number)
            server.stop()

        signal.signal(signal.SIGINT, stop)
        signal.signal(signal.SIGTERM, stop)
        # Python runs the handler between two bytecodes; a signal just before poll sleeps would wait with it.
        signal.set_wakeup_fd(server.wakeup_fd(), warn_on_full_buffer=False)
        _announce(server, policy, args.json)
        server.serve_forever()
        signal.set_wakeup_fd(-1)
    return EXIT_INTERRUPTED if signal.SIGINT in received else 0


def tune_process() -> None:
    """Settings of a process that does nothing but serve."""
    # The policy's thread must not keep the network's waiting for Python's default 5 ms.
    sys.setswitchinterval(_SWITCH_INTERVAL_S)
    keep_freed_memory()


def _announce(server: PolicyServer, policy: Policy, path: Path | None) -> None:
    if path is not None:
        facts = {"address": server.address, "pid": os.getpid(), "policy": policy.name}
        written = path.with_suffix(path.suffix + ".part")
        written.write_text(json.dumps(facts) + "\n")
        written.replace(path)
    print(f"ready: {server.address} policy {policy.name}", flush=True)
